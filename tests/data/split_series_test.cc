// Splits of rows by series: whole series, whatever order the rows are in, near to the shares.
#include "troika/data/split_series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "data/series_table.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace troika {
namespace {

SplitOptions series_split(double validation, double test, uint64_t seed = 0) {
  SplitOptions options;
  options.by = SplitOptions::By::series;
  options.validation = validation;
  options.test = test;
  options.series_columns = {"id"};
  options.seed = seed;
  return options;
}

// The part of every series; fails if one is in two.
std::map<int, int> parts_of_series(const Split& split, const std::vector<SeriesRow>& rows) {
  std::map<int, std::set<int>> found;
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    if (split.train.contains(at)) found[rows[row].series].insert(0);
    if (split.validation.contains(at)) found[rows[row].series].insert(1);
    if (split.test.contains(at)) found[rows[row].series].insert(2);
  }
  std::map<int, int> parts;
  for (const auto& [series, of_one] : found) {
    EXPECT_EQ(of_one.size(), 1u) << series;
    parts[series] = *of_one.begin();
  }
  return parts;
}

TEST(SplitSeries, KeepsScatteredRowsTogetherInAnyOrder) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  for (int64_t k = 0; k < 6'000; ++k) {
    const auto series = static_cast<int>(philox(1, 0, static_cast<uint64_t>(k))[0] % 60);
    rows.push_back({series, k, k % 11 != 0});
  }
  std::map<int, int> first;
  for (int turn = 0; turn < 3; ++turn) {
    const Split split =
        split_rows(make_series(folder.path(), rows, true, 999), {"y"}, series_split(0.15, 0.1, 4));
    EXPECT_EQ(split.null_targets, 546);
    EXPECT_EQ(split.items(), 6'000 - 546);
    EXPECT_NEAR(static_cast<double>(split.validation.count()) / 5'454, 0.15, 0.01);
    EXPECT_NEAR(static_cast<double>(split.test.count()) / 5'454, 0.1, 0.01);
    const std::map<int, int> parts = parts_of_series(split, rows);
    EXPECT_EQ(parts.size(), 60u);
    if (turn == 0) first = parts;
    EXPECT_EQ(parts, first);
    std::rotate(rows.begin(), rows.begin() + 1'999, rows.end());
    std::reverse(rows.begin(), rows.begin() + 500);
  }
  const Split other = split_rows(make_series(folder.path(), rows), {"y"}, series_split(0.15, 0.1, 5));
  EXPECT_NE(parts_of_series(other, rows), first);
}

// The texts of categories count, not their codes, which depend on the order of appearance.
TEST(SplitSeries, GoesByTheTextsOfCategories) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  for (int series = 0; series < 12; ++series) add_series(rows, series, 10);
  Dataset dataset = make_series(folder.path(), rows);
  const std::map<int, int> parts = parts_of_series(split_rows(dataset, {"y"}, series_split(0.2, 0.2)), rows);
  for (SeriesRow& row : rows) row.series = 11 - row.series;
  Dataset renamed = make_series(folder.path(), rows);
  std::reverse(renamed.columns[1].categories.begin(), renamed.columns[1].categories.begin() + 12);
  for (const auto& [series, part] :
       parts_of_series(split_rows(renamed, {"y"}, series_split(0.2, 0.2)), rows)) {
    EXPECT_EQ(part, parts.at(11 - series)) << series;
  }
}

TEST(SplitSeries, DescribesItself) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  for (int series = 0; series < 3; ++series) add_series(rows, series, 1'000);
  rows[5].has_target = false;
  const std::string text =
      split_rows(make_series(folder.path(), rows), {"y"}, series_split(0, 0.1)).description;
  EXPECT_EQ(text.find("by series (id; seed 0): train 2 series ("), 0u) << text;
  EXPECT_NE(text.find("test 1 series ("), std::string::npos) << text;
  EXPECT_NE(text.find("left out: 1 rows without a target"), std::string::npos) << text;
}

TEST(SplitSeries, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  for (int series = 0; series < 2; ++series) add_series(rows, series, 10);
  const Dataset dataset = make_series(folder.path(), rows);
  EXPECT_EQ(error_of([&] { split_rows(dataset, {"y"}, series_split(0.1, 0.1)); }),
            "split by series: 3 parts need at least 3 series with rows with a target, but id tells apart 2; "
            "use fewer "
            "parts (validation = 0 or test = 0), other series columns, or split by = \"time\"");
  SplitOptions none = series_split(0.1, 0.1);
  none.series_columns = {};
  EXPECT_NE(error_of([&] { split_rows(dataset, {"y"}, none); }).find("but none is named"), std::string::npos);
}

std::vector<int64_t> items_of_parts(const std::vector<SeriesSize>& series, const std::vector<int>& parts) {
  std::vector<int64_t> items(3);
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[k] >= 0) items[static_cast<size_t>(parts[k])] += series[k].items;
  }
  return items;
}

TEST(DealSeries, NeverLeavesAnAskedForPartEmpty) {
  int64_t dealt = 0;
  for (uint64_t round = 0; round < 2'000; ++round) {
    auto draw = [&, at = uint64_t{0}](uint32_t bound) mutable { return philox(5, round, at++)[0] % bound; };
    std::vector<SeriesSize> series(1 + draw(9));
    int64_t with_items = 0;
    for (SeriesSize& one : series) {
      one = {philox(6, round, draw(1'000'000))[1], draw(4) == 0 ? 0 : 1 + draw(draw(2) == 0 ? 10 : 1'000)};
      with_items += one.items > 0 ? 1 : 0;
    }
    const double validation = draw(3) == 0 ? 0 : 0.01 + 0.4 * draw(100) / 100;
    const double test = draw(3) == 0 ? 0 : 0.01 + 0.5 * draw(100) / 100;
    const std::vector<int> parts = deal_series(series, series_split(validation, test));
    const int64_t asked_for = 1 + (validation > 0 ? 1 : 0) + (test > 0 ? 1 : 0);
    ASSERT_EQ(parts.empty(), with_items < asked_for) << round;
    if (parts.empty()) continue;
    ++dealt;
    const std::vector<int64_t> items = items_of_parts(series, parts);
    ASSERT_GT(items[0], 0) << round;
    ASSERT_EQ(items[1] > 0, validation > 0) << round;
    ASSERT_EQ(items[2] > 0, test > 0) << round;
    for (size_t k = 0; k < series.size(); ++k) ASSERT_EQ(parts[k] >= 0, series[k].items > 0);
  }
  EXPECT_GT(dealt, 1'000);
}

TEST(DealSeries, PassesASeriesByThatIsFarTooLarge) {
  std::vector<SeriesSize> series;
  for (uint64_t k = 0; k < 50; ++k) series.push_back({philox(7, 0, k)[0], k == 20 ? 5'000 : 100});
  for (uint64_t k = 0; k < 20; ++k) {
    series[20].hash = k * (uint64_t{1} << 28);
    const std::vector<int64_t> items = items_of_parts(series, deal_series(series, series_split(0.1, 0.1)));
    EXPECT_NEAR(static_cast<double>(items[1]), 990, 50);
    EXPECT_NEAR(static_cast<double>(items[2]), 990, 50);
  }
}

}  // namespace
}  // namespace troika

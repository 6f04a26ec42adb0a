// Where series and their unbroken stretches begin, and what is said of rows that are out of place.
#include <gtest/gtest.h>

#include <cmath>

#include "data/series_table.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"
#include "troika/data/windows_scan.h"

namespace troika {
namespace {

std::vector<Range> stretches(const SeriesMap& map) {
  std::vector<Range> rows;
  for (const Segment& segment : map.segments) rows.push_back(segment.rows);
  return rows;
}

WindowOptions series_by(std::vector<std::string> columns, std::string time = "t", double max_gap = 0) {
  return {.series = std::move(columns), .time = std::move(time), .max_gap = max_gap};
}

TEST(FindSeries, BreaksAtNewSeriesGapsAndTimesThatStandStill) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  add_series(rows, 3, 5, 100, 60);   // 0 to 4
  add_series(rows, 3, 4, 1000, 60);  // a gap, 5 to 8
  add_series(rows, 1, 3, 0, 60);     // an earlier time, but another series: 9 to 11
  rows.push_back({1, 120, true});    // stands still: 12
  rows.push_back({1, 180, true});    // 13
  for (const bool timestamps : {true, false}) {
    const SeriesMap map = find_series(make_series(folder.path(), rows, timestamps), series_by({"id"}));
    EXPECT_EQ(stretches(map), (std::vector<Range>{{0, 5}, {5, 9}, {9, 12}, {12, 14}}));
    EXPECT_EQ(map.series, 2);
    EXPECT_EQ(map.gaps, 2);
    EXPECT_EQ(map.repeated, 1);
    EXPECT_EQ(map.median_step, 60);
    EXPECT_EQ(map.segments[1].series, 0);
    EXPECT_EQ(map.segments[3].series, 1);
  }
}

TEST(FindSeries, TakesTheGivenGapInSecondsOrTheColumnsUnit) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  for (const int64_t time : {0, 10, 20, 35, 36, 56}) rows.push_back({0, time, true});
  for (const bool timestamps : {true, false}) {
    const Dataset dataset = make_series(folder.path(), rows, timestamps);
    const auto with = [&](double max_gap) {
      return stretches(find_series(dataset, series_by({"id"}, "t", max_gap)));
    };
    EXPECT_EQ(with(15), (std::vector<Range>{{0, 5}, {5, 6}}));
    EXPECT_EQ(with(14.9), (std::vector<Range>{{0, 3}, {3, 5}, {5, 6}}));
    EXPECT_EQ(with(20), (std::vector<Range>{{0, 6}}));
    // The steps are 1, 10, 10, 15, 20: the median is 10, so 15 is none.
    EXPECT_EQ(with(0), (std::vector<Range>{{0, 5}, {5, 6}}));
  }
}

// The first step is the longest one but for the gaps, so that the steps kept in the first pass don't do.
TEST(FindSeries, FindsTheMedianWhereTheFirstStepIsNone) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows{{0, 0, true}, {0, 1000, true}};
  add_series(rows, 0, 50, 1001);
  add_series(rows, 0, 50, 1052);  // a step of 2
  const SeriesMap map = find_series(make_series(folder.path(), rows), series_by({}));
  EXPECT_EQ(stretches(map), (std::vector<Range>{{0, 1}, {1, 52}, {52, 102}}));
  EXPECT_EQ(map.median_step, 1);
}

// More uneven steps than are held: the rows are read again, and the answer is the same as with the gap given.
TEST(FindSeries, TakesAnyNumberOfUnevenSteps) {
  const TemporaryFolder folder;
  constexpr int64_t kRows = 1'300'000;
  std::vector<int64_t> times{0, 1};
  for (int64_t row = 2; row < kRows; ++row) {
    times.push_back(times.back() + 100 +
                    static_cast<int64_t>(philox(3, 0, static_cast<uint64_t>(row))[0] % 401));
  }
  Dataset dataset =
      make_dataset(folder.path(), {.rows = kRows, .float_columns = 0, .int_at = [&](int64_t row, int) {
                                     return times[static_cast<size_t>(row)];
                                   }});
  dataset.columns[0].type = ColumnType::integer;
  int64_t visits = 0;
  const SeriesScan found =
      scan_series(dataset, series_by({}, "i0"),
                  [&](int64_t row, const RowBuffer&, int64_t) { EXPECT_EQ(row, visits++); });
  EXPECT_EQ(visits, kRows);
  EXPECT_NEAR(found.map.median_step, 300, 1);
  EXPECT_GT(found.map.gaps, 100'000);
  const SeriesMap given = find_series(dataset, series_by({}, "i0", found.largest_step));
  EXPECT_EQ(stretches(found.map), stretches(given));
  EXPECT_EQ(given.gaps, found.map.gaps);
  EXPECT_EQ(stretches(find_series(dataset, series_by({}, "i0", 500))).size(), 1u);
}

TEST(FindSeries, WithoutATimeColumnHasNoGaps) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 3, 50);
  add_series(rows, 0, 3, 0);
  add_series(rows, 1, 2, 0);
  const Dataset dataset = make_series(folder.path(), rows);
  const SeriesMap map = find_series(dataset, series_by({"id"}, ""));
  EXPECT_EQ(stretches(map), (std::vector<Range>{{0, 6}, {6, 8}}));
  EXPECT_EQ(map.median_step, 0);
  EXPECT_EQ(stretches(find_series(dataset, series_by({}, ""))), (std::vector<Range>{{0, 8}}));
  const Dataset empty = make_series(folder.path(), {});
  EXPECT_EQ(find_series(empty, series_by({"id"})).segments.size(), 0u);
}

// Columns f0 a number, f1 a boolean, f2 a category, i0 a wide integer; rows with and without nulls.
TEST(FindSeries, ComparesValuesOfEveryTypeExactly) {
  const TemporaryFolder folder;
  const float none = std::nanf("");
  struct Values {
    float number, truth, code;
    int64_t wide;
  };
  constexpr int64_t kWide = int64_t{1} << 60;
  const std::vector<Values> rows{{0.1f, 0, 0, kWide},
                                 {std::nextafter(0.1f, 1.0f), 0, 0, kWide},
                                 {0.0f, 0, 0, kWide},
                                 {-0.0f, 0, 0, kWide},
                                 {0.0f, 1, 0, kWide},
                                 {0.0f, none, 0, kWide},
                                 {-std::nanf("1"), none, 0, kWide},
                                 {none, none, 0, kWide},
                                 {none, none, none, kWide},
                                 {none, none, none, kWide + 1},
                                 {none, none, none, std::numeric_limits<int64_t>::min()}};
  Dataset dataset = make_dataset(
      folder.path(), {.rows = static_cast<int64_t>(rows.size()),
                      .float_columns = 3,
                      .float_at =
                          [&](int64_t row, int c) {
                            const Values& at = rows[static_cast<size_t>(row)];
                            return c == 0 ? at.number : c == 1 ? at.truth : at.code;
                          },
                      .int_at = [&](int64_t row, int) { return rows[static_cast<size_t>(row)].wide; }});
  dataset.columns[1].type = ColumnType::boolean;
  dataset.columns[2].type = ColumnType::category;
  dataset.columns[2].categories = {"JFK"};
  dataset.columns[3].type = ColumnType::integer;
  const SeriesScan found = scan_series(dataset, series_by({"f0", "f1", "f2", "i0"}, ""),
                                       [](int64_t, const RowBuffer&, int64_t) {});
  std::vector<int64_t> begins;
  for (const Segment& segment : found.map.segments) begins.push_back(segment.rows.begin);
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 1, 2, 4, 5, 6, 8, 9, 10}));
  const SeriesColumns columns(dataset, {"f0", "f1", "f2", "i0"});
  EXPECT_EQ(columns.text(found.keys[0]), "f0 = 0.1, f1 = false, f2 = \"JFK\", i0 = 1152921504606846976");
  EXPECT_EQ(columns.text(found.keys[8]), "f0 = null, f1 = null, f2 = null, i0 = null");
}

class OutOfPlace : public testing::Test {
 protected:
  std::string error(const std::vector<SeriesRow>& rows, const WindowOptions& options) {
    Dataset dataset = make_series(folder_.path(), rows);
    dataset.source_path = source_;
    dataset.rejected_rows = rejected_;
    return error_of([&] { find_series(dataset, options); });
  }
  TemporaryFolder folder_;
  std::string source_ = "data/weather.csv";
  int64_t rejected_ = 0;
};

TEST_F(OutOfPlace, ATimeThatGoesBackIsNamedWithBothTimes) {
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 5, 0, 3600);
  add_series(rows, 1, 3, 7200, 3600);
  rows.push_back({1, 3600, true});
  rows.push_back({1, 0, true});
  const std::string text = error(rows, series_by({"id"}));
  EXPECT_SAYS(text, "row 8 (counted from 0; probably line 10 of weather.csv) of series id = \"b\"");
  EXPECT_SAYS(text, "has t 1970-01-01T01:00:00Z, and the row before it 1970-01-01T04:00:00Z");
  EXPECT_SAYS(text, "sort the CSV by id, t and pack it again");
  EXPECT_EQ(text.find("several series"), std::string::npos) << text;
}

TEST_F(OutOfPlace, WithoutSeriesColumnsTheyAreSuggested) {
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 5);
  add_series(rows, 1, 5);
  const std::string text = error(rows, series_by({}));
  EXPECT_SAYS(text, "but row 5 (counted from 0; probably line 7 of weather.csv) has t");
  EXPECT_SAYS(text,
              "if these are rows of several series, name the columns that tell them apart (perhaps id)");
}

TEST_F(OutOfPlace, ASeriesThatComesBackIsNamed) {
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 2);
  add_series(rows, 1, 2);
  rows.push_back({0, 2, true});
  rejected_ = 1;  // lines can't be counted then
  const std::string text = error(rows, series_by({"id"}));
  EXPECT_SAYS(text,
              "but row 4 (counted from 0) of series id = \"a\" comes with t 1970-01-01T00:00:02Z after");
  EXPECT_SAYS(text, "the last one of its series was row 1 with 1970-01-01T00:00:01Z");
  EXPECT_SAYS(text, "sort the CSV by id, t and pack it again");
  source_ = "a.csv, b.csv";
  rejected_ = 0;
  EXPECT_SAYS(
      error(rows, series_by({"id"}, "")),
      "row 4 (counted from 0) of series id = \"a\" comes after rows of other series, and the last one of its "
      "series was row 1; sort the CSV so that rows with the same id lie together");
}

TEST_F(OutOfPlace, ARowWithoutATimeIsNamed) {
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 5);
  rows[2].time = kNoTime;
  EXPECT_SAYS(error(rows, series_by({"id"})),
              "row 2 (counted from 0; probably line 4 of weather.csv) of series id = \"a\" has no \"t\"");
  rows[2].time = 2;
  rows[0].time = kNoTime;
  EXPECT_SAYS(error(rows, series_by({"id"})), "row 0 (counted from 0; probably line 2 of weather.csv)");
}

TEST_F(OutOfPlace, ColumnsThatCantBeWhatTheyAreNamedForAreUsageErrors) {
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 5);
  EXPECT_SAYS(error(rows, series_by({"t"})), "\"t\" can't be the time column and tell series apart");
  EXPECT_SAYS(error(rows, series_by({"id", "id"})), "\"id\" is named twice");
  EXPECT_SAYS(error(rows, series_by({"ids"})), "has no column \"ids\"");
  EXPECT_SAYS(error(rows, series_by({}, "y")), "\"y\" is of type float; columns that could be it: t");
  EXPECT_SAYS(error(rows, series_by({}, "t", -1)), "max_gap = -1");
  EXPECT_SAYS(error(rows, series_by({}, "t", std::nan(""))), "max_gap = nan");
  const Dataset dataset = make_series(folder_.path(), rows);
  EXPECT_THROW(find_series(dataset, series_by({"t"})), UsageError);
}

TEST(StepHistogram, GivesTheLowerMedianOfAnySteps) {
  EXPECT_EQ(StepHistogram().median(), 0);
  for (const uint64_t scale : {uint64_t{1}, uint64_t{1'000'003}, uint64_t{1} << 50}) {
    for (const size_t count : {1u, 2u, 3u, 10u, 1'000u}) {
      StepHistogram histogram;
      std::vector<uint64_t> steps;
      for (size_t k = 0; k < count; ++k) {
        steps.push_back(1 + scale * philox(9, scale, k)[0] % (scale * 8'000));
        histogram.add(steps.back());
      }
      std::sort(steps.begin(), steps.end());
      const auto exact = static_cast<double>(steps[(count - 1) / 2]);
      EXPECT_NEAR(histogram.median(), exact, exact / 1000) << scale << " x " << count;
    }
  }
  StepHistogram even;
  for (int k = 0; k < 100; ++k) even.add(3'600'000'000'000);
  even.add(~uint64_t{0});
  EXPECT_EQ(even.median(), 3.6e12);
}

TEST(CoveredRows, AreThoseOfEverySample) {
  for (const int64_t span : {1, 2, 5, 64, 70}) {
    for (const uint64_t key : {1u, 2u, 3u}) {
      RowSet starts(200);
      std::vector<bool> expected(200, false);
      for (int64_t row = 0; row + span <= 200; ++row) {
        if (uniform(key, static_cast<uint64_t>(row)) > 0.03 * static_cast<double>(key)) continue;
        starts.set(row, true);
        for (int64_t k = row; k < row + span; ++k) expected[static_cast<size_t>(k)] = true;
      }
      const RowSet covered = covered_rows(starts, span);
      for (int64_t row = 0; row < 200; ++row)
        ASSERT_EQ(covered.contains(row), expected[static_cast<size_t>(row)]);
    }
  }
}

TEST(CoveredRowsDeathTest, RefusesSamplesThatReachBeyondTheRows) {
  RowSet starts(10);
  starts.set(8, true);
  EXPECT_EQ(covered_rows(starts, 2).count(), 2);
  EXPECT_DEATH(covered_rows(starts, 3), "3 rows begins at row 8 of 10");
}

}  // namespace
}  // namespace troika

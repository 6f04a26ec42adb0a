// Windows are exactly those that a plain look at every row finds, and no row is in windows of two parts.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "data/series_table.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"

namespace troika {
namespace {

constexpr int64_t kSecondsPerDay = 86'400;

SplitOptions train_only() { return {.validation = 0, .test = 0}; }
SplitOptions split_by(SplitOptions::By by, double validation, double test, uint64_t seed = 0) {
  SplitOptions options;
  options.by = by;
  options.validation = validation;
  options.test = test;
  options.seed = seed;
  return options;
}
constexpr auto kByTime = SplitOptions::By::time;
constexpr auto kBySeries = SplitOptions::By::series;

std::vector<int64_t> train_windows(const Dataset& dataset, const WindowOptions& windows) {
  SplitOptions split = train_only();
  // At random is for windows that don't overlap; a split without parts may go by anything.
  split.by = windows.stride >= windows.span() ? SplitOptions::By::random : kByTime;
  return members_of(split_windows(dataset, {"y"}, split, windows).train);
}

// Fails if a row is in windows of two parts; returns the rows of each part's windows.
std::vector<RowSet> expect_no_leak(const Split& split, int64_t span) {
  const std::vector<RowSet> covered{covered_rows(split.train, span), covered_rows(split.validation, span),
                                    covered_rows(split.test, span)};
  for (int64_t row = 0; row < covered[0].universe(); ++row) {
    const int parts = covered[0].contains(row) + covered[1].contains(row) + covered[2].contains(row);
    EXPECT_LE(parts, 1) << "row " << row;
    if (parts > 1) break;
  }
  return covered;
}

// Series of every length that matters, with and without a gap in the middle.
TEST(Windows, AreTheNaiveOnesOverAGrid) {
  const TemporaryFolder folder;
  for (const int64_t window : {1, 2, 5}) {
    for (const int64_t horizon : {0, 1, 3}) {
      const int64_t span = window + horizon;
      std::vector<SeriesRow> rows;
      int series = 0;
      for (const int64_t length : {int64_t{1}, span - 1, span, span + 1, 2 * span, 4 * span + 1}) {
        for (const bool gap : {false, true}) {
          for (int64_t k = 0; k < length; ++k) {
            const bool after = gap && 2 * k >= length;
            const bool has_target = length < 4 * span || k % 7 != 3;
            rows.push_back({series, 100 * series + k + (after ? 2 : 0), has_target});
          }
          ++series;
        }
      }
      const Dataset dataset = make_series(folder.path(), rows);
      for (const int64_t stride : {int64_t{1}, int64_t{2}, span - 1, span, span + 1, int64_t{1'000}}) {
        if (stride < 1) continue;
        ASSERT_EQ(train_windows(dataset, windows_of(window, horizon, stride)),
                  naive_windows(rows, window, horizon, stride, 1.5))
            << window << " + " << horizon << ", every " << stride;
      }
    }
  }
}

TEST(Windows, AreTheNaiveOnesOfRandomSeries) {
  const TemporaryFolder folder;
  int64_t total = 0;
  for (uint64_t round = 0; round < 60; ++round) {
    uint64_t draws = 0;
    const auto below = [&](uint32_t bound) {
      return static_cast<int64_t>(philox(77, round, draws++)[0] % bound);
    };
    std::vector<SeriesRow> rows;
    const auto series = static_cast<int>(1 + below(6));
    for (int s = 0; s < series; ++s) {
      int64_t time = below(50) - 25;
      for (int64_t left = below(40); left > 0; --left) {
        rows.push_back({s, time, below(12) != 0});
        const int64_t kind = below(10);
        time += kind == 0 ? 0 : kind == 1 ? 2 + below(4) : 1;
      }
    }
    if (rows.size() < 12) continue;
    const int64_t window = 1 + below(5), horizon = below(4), stride = 1 + below(8);
    const auto max_gap = static_cast<double>(1 + below(4));
    const Dataset dataset = make_series(folder.path(), rows, round % 2 == 0, 5 + below(30));
    const std::vector<int64_t> expected = naive_windows(rows, window, horizon, stride, max_gap);
    if (expected.empty()) continue;
    total += static_cast<int64_t>(expected.size());
    ASSERT_EQ(train_windows(dataset, windows_of(window, horizon, stride, max_gap)), expected)
        << "round " << round << ": " << window << " + " << horizon << ", every " << stride;
  }
  EXPECT_GT(total, 500);
}

// Random series, strides and shares: whatever comes out, no row is in two parts, and time goes one way.
TEST(WindowsByTime, LeakNothing) {
  const TemporaryFolder folder;
  int splits = 0;
  for (uint64_t round = 0; round < 30; ++round) {
    uint64_t draws = 0;
    const auto below = [&](uint32_t bound) {
      return static_cast<int64_t>(philox(78, round, draws++)[0] % bound);
    };
    const bool days = round % 2 == 0;  // cut between days, or between times
    const int64_t step = days ? kSecondsPerDay / 4 : 1;
    std::vector<SeriesRow> rows;
    for (int s = 0; s < 1 + static_cast<int>(round % 3); ++s) {
      int64_t time = below(40) * step;
      for (int64_t left = 200 + below(100); left > 0; --left) {
        rows.push_back({s, time, below(30) != 0});
        time += below(80) == 0 ? 5 * step : step;
      }
    }
    const int64_t window = 1 + below(6), horizon = below(4), stride = 1 + below(3);
    const Dataset dataset = make_series(folder.path(), rows, days || round % 4 == 1, 20 + below(200));
    const double validation = 0.1 * static_cast<double>(below(4)),
                 test = 0.1 * static_cast<double>(1 + below(3));
    const WindowOptions windows = windows_of(window, horizon, stride);
    const Split split = split_windows(dataset, {"y"}, split_by(kByTime, validation, test), windows);
    const std::vector<RowSet> covered = expect_no_leak(split, windows.span());
    int64_t last[3], first[3];
    for (size_t part = 0; part < 3; ++part) {
      first[part] = std::numeric_limits<int64_t>::max();
      last[part] = std::numeric_limits<int64_t>::min();
      for (const int64_t row : members_of(covered[part])) {
        first[part] = std::min(first[part], rows[static_cast<size_t>(row)].time);
        last[part] = std::max(last[part], rows[static_cast<size_t>(row)].time);
      }
    }
    EXPECT_LT(last[0], std::min(first[1], first[2]));
    EXPECT_LT(last[1], first[2]);
    if (days) {
      EXPECT_LT(last[0] / kSecondsPerDay, std::min(first[1], first[2]) / kSecondsPerDay);
    }
    // What fell out at the cuts is less than a span for each series and cut.
    const auto all = static_cast<int64_t>(
        naive_windows(rows, window, horizon, stride, 1.5 * static_cast<double>(step)).size());
    EXPECT_LE(all - split.items(), 3 * 2 * windows.span());
    EXPECT_EQ(split.validation.count() > 0, validation > 0);
    ++splits;
  }
  EXPECT_EQ(splits, 30);
}

TEST(WindowsByTime, CutAsRowsAreAndSayWhatFellOut) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  for (const int series : {0, 1}) add_series(rows, series, 24 * 100, 0, 3600);
  rows[1000].has_target = false;
  rows[24 * 100 + 7].has_target = false;  // only ever an input
  const Dataset dataset = make_series(folder.path(), rows);
  const Split split = split_windows(dataset, {"y"}, split_by(kByTime, 0.1, 0.1), windows_of(10, 2));
  // 80, 10 and 10 days, 11 windows lost at each cut's both sides; row 1000 is a target of two windows.
  EXPECT_EQ(split.train.count(), 2 * (80 * 24 - 11) - 2);
  EXPECT_EQ(split.validation.count(), 2 * (10 * 24 - 11));
  EXPECT_EQ(split.test.count(), 2 * (10 * 24 - 11));
  EXPECT_EQ(split.null_targets, 2);
  EXPECT_EQ(split.description,
            "by time (\"t\", whole UTC days): train before 1970-03-22 (3,816 windows), validation from "
            "1970-03-22 to "
            "before 1970-04-01 (458 windows), test from 1970-04-01 (458 windows); windows of 10 + 2 rows; 2 "
            "series, 0 "
            "gaps (steps above 5400 s, 1.5 x the median step); windows left out: 44 across a cut, 2 whose "
            "target is null");
  EXPECT_FALSE(split.train.contains(1000 - 10));
  EXPECT_FALSE(split.train.contains(1000 - 11));
  EXPECT_TRUE(split.train.contains(1000 - 9));
  EXPECT_TRUE(split.train.contains(1000));
  EXPECT_TRUE(split.train.contains(24 * 100));
}

TEST(WindowsInOrder, CutEachSeriesAtItsOwnRows) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 30, 0);
  add_series(rows, 0, 70, 60);  // after a gap
  add_series(rows, 1, 20, 0);
  const Dataset dataset = make_series(folder.path(), rows);
  const Split split =
      split_windows(dataset, {"y"}, split_by(SplitOptions::By::order, 0.1, 0.2), windows_of(3, 1));
  std::vector<int64_t> train, validation, test;
  const auto add = [](std::vector<int64_t>& part, int64_t begin, int64_t end) {
    for (int64_t row = begin; row + 4 <= end; ++row) part.push_back(row);
  };
  add(train, 0, 30);
  add(train, 30, 70);
  add(train, 100, 114);
  add(validation, 70, 80);
  add(test, 80, 100);
  add(test, 116, 120);
  EXPECT_EQ(members_of(split.train), train);
  EXPECT_EQ(members_of(split.validation), validation);
  EXPECT_EQ(members_of(split.test), test);
  expect_no_leak(split, 4);
  EXPECT_SAYS(split.description,
              "in order, of each series: train the first 70 % (75 windows), validation the next 10 % (7 "
              "windows), test the rest (18 windows)");
  EXPECT_SAYS(split.description, "across a cut");
}

TEST(WindowsInOrder, NeedNoTimeAndNoSeries) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 50, 0);
  const Dataset dataset = make_series(folder.path(), rows);
  WindowOptions windows = windows_of(4, 1, 4);
  windows.time = "";
  windows.series = {};
  const Split split = split_windows(dataset, {"y"}, split_by(SplitOptions::By::order, 0.2, 0), windows);
  // Each window begins with the last row of the one before it.
  EXPECT_EQ(members_of(split.train), (std::vector<int64_t>{0, 4, 8, 12, 16, 20, 24, 28, 32}));
  EXPECT_EQ(members_of(split.validation), (std::vector<int64_t>{40, 44}));
  EXPECT_EQ(split.test.count(), 0);
  EXPECT_SAYS(error_of([&] { split_rows(dataset, {"y"}, split_by(SplitOptions::By::order, 0.2, 0)); }),
              "is of windows over series");
}

TEST(WindowsByTime, CountWhatFellOutAtGaps) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 50, 0);
  add_series(rows, 0, 3, 60);
  add_series(rows, 0, 50, 63);
  rows[53].time = rows[52].time;  // stands still
  for (size_t k = 54; k < rows.size(); ++k) --rows[k].time;
  const Dataset dataset = make_series(folder.path(), rows, false);
  const Split split = split_windows(dataset, {"y"}, split_by(kByTime, 0, 0.2), windows_of(3, 1));
  // 103 rows would be 100 windows: 47 + 47 without 3 rows at either end of each gap, and 3 at the cut.
  EXPECT_EQ(split.items(), 94 - 3);
  EXPECT_SAYS(split.description,
              "1 series, 2 gaps (steps above 1.5, 1.5 x the median step, 1 of them where the time stands "
              "still); windows left "
              "out: 3 across a cut, 6 across a gap");
  EXPECT_SAYS(split.description, "train before 9");
}

TEST(WindowsByTime, SayWhatIsMissing) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 100, 0, kSecondsPerDay);
  const Dataset dataset = make_series(folder.path(), rows);
  const auto error = [&](const SplitOptions& split, const WindowOptions& windows) {
    return error_of([&] { split_windows(dataset, {"y"}, split, windows); });
  };
  WindowOptions timeless = windows_of(3, 1);
  timeless.time = "";
  EXPECT_SAYS(error(split_by(kByTime, 0.1, 0.1), timeless),
              "needs the column that the rows of a series are in order of");
  SplitOptions other = split_by(kByTime, 0.1, 0.1);
  other.time_column = "y";
  EXPECT_SAYS(error(other, windows_of(3, 1)), "windows are in order of \"t\" and can't be split by \"y\"");
  const std::string text = error(split_by(kByTime, 0.1, 0.1), windows_of(9, 4));
  EXPECT_SAYS(text, "the validation part would have no window: 0.1 was asked for, a window takes 13 rows");
  EXPECT_SAYS(text, "20 across a cut");
  EXPECT_SAYS(error(split_by(kByTime, 0.1, 0.1), windows_of(90, 20)), "windows of 90 + 20 rows");
  EXPECT_SAYS(error(split_by(kByTime, 0.1, 0.1), windows_of(1'000, 0)), "has only 100 rows");
  EXPECT_SAYS(error(split_by(kByTime, 0.1, 0.1), windows_of(3, std::numeric_limits<int64_t>::max())),
              "has only 100 rows");
  EXPECT_SAYS(error(split_by(kByTime, 0.1, 0.1), windows_of(3, -1)), "horizon = -1");
  EXPECT_SAYS(error(split_by(kByTime, 0.1, 0.1), windows_of(3, 1, 0)), "stride = 0");
  EXPECT_SAYS(error(split_by(kByTime, 0.1, 1), windows_of(3, 1)), "must be shares");
  EXPECT_EQ(train_windows(dataset, windows_of(3, 1, std::numeric_limits<int64_t>::max())),
            std::vector<int64_t>{0});
  std::vector<SeriesRow> short_ones;
  for (int s = 0; s < 9; ++s) add_series(short_ones, s, 5);
  const Dataset many = make_series(folder.path(), short_ones);
  WindowOptions unnamed = windows_of(4, 2);
  EXPECT_SAYS(error_of([&] { split_windows(many, {"y"}, split_by(kByTime, 0.1, 0.1), unnamed); }),
              "no window of 4 + 2 rows fits in: the most rows that a series has without a gap are 5 (9 "
              "series, 0 gaps)");
  for (SeriesRow& row : short_ones) row.time = 5;
  const Dataset still = make_series(folder.path(), short_ones);
  unnamed.series = {};
  EXPECT_SAYS(error_of([&] { split_windows(still, {"y"}, split_by(kByTime, 0.1, 0.1), unnamed); }),
              "rows may be of several series: name the columns that tell them apart");
}

TEST(WindowsAtRandom, AreRefusedWhereTheyOverlap) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 400);
  const Dataset dataset = make_series(folder.path(), rows);
  const SplitOptions random = split_by(SplitOptions::By::random, 0.2, 0.2);
  EXPECT_SAYS(error_of([&] { split_windows(dataset, {"y"}, random, windows_of(3, 1, 3)); }),
              "begin every 3 rows overlap, so parts at random would share rows; use split by = \"time\" or "
              "\"series\", "
              "or stride = 4");
  const Split split = split_windows(dataset, {"y"}, random, windows_of(3, 1, 4));
  expect_no_leak(split, 4);
  EXPECT_EQ(split.items(), 100);
  EXPECT_GT(split.validation.count(), 5);
  EXPECT_GT(split.test.count(), 5);
}

TEST(WindowsBySeries, KeepEachSeriesInOnePartWhateverTheRowOrder) {
  const TemporaryFolder folder;
  for (const uint64_t seed : {0u, 1u, 2u}) {
    std::vector<int> order(20);
    for (int k = 0; k < 20; ++k) order[static_cast<size_t>(k)] = k;
    std::vector<std::vector<int>> part_of_orders;
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<SeriesRow> rows;
      for (const int series : order) add_series(rows, series, 20 + series * 3);
      const Dataset dataset = make_series(folder.path(), rows);
      const Split split =
          split_windows(dataset, {"y"}, split_by(kBySeries, 0.2, 0.2, seed), windows_of(4, 2));
      expect_no_leak(split, 6);
      std::vector<std::set<int>> parts_of(20);
      const RowSet* const parts[] = {&split.train, &split.validation, &split.test};
      for (int part = 0; part < 3; ++part) {
        for (const int64_t row : members_of(*parts[part]))
          parts_of[static_cast<size_t>(rows[static_cast<size_t>(row)].series)].insert(part);
      }
      std::vector<int> part_of;
      for (const std::set<int>& parts_of_one : parts_of) {
        ASSERT_EQ(parts_of_one.size(), 1u);
        part_of.push_back(*parts_of_one.begin());
      }
      part_of_orders.push_back(part_of);
      EXPECT_EQ(split.items(), static_cast<int64_t>(naive_windows(rows, 4, 2, 1, 1.5).size()));
      const auto all = static_cast<double>(split.items());
      EXPECT_NEAR(static_cast<double>(split.validation.count()) / all, 0.2, 0.03);
      EXPECT_NEAR(static_cast<double>(split.test.count()) / all, 0.2, 0.03);
      std::rotate(order.begin(), order.begin() + 7, order.end());
    }
    EXPECT_EQ(part_of_orders[0], part_of_orders[1]);
    EXPECT_EQ(part_of_orders[0], part_of_orders[2]);
  }
}

TEST(WindowsBySeries, SayWhatIsMissing) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  add_series(rows, 0, 30);
  add_series(rows, 1, 30);
  add_series(rows, 2, 3);  // no window
  const Dataset dataset = make_series(folder.path(), rows);
  EXPECT_SAYS(
      error_of([&] { split_windows(dataset, {"y"}, split_by(kBySeries, 0.1, 0.1), windows_of(4, 2)); }),
      "3 parts need at least 3 series with windows, but id tells apart 2 of 3 series that have some");
  SplitOptions other = split_by(kBySeries, 0, 0.1);
  other.series_columns = {"y"};
  EXPECT_SAYS(error_of([&] { split_windows(dataset, {"y"}, other, windows_of(4, 2)); }),
              "can't go by \"y\", which isn't among the series columns: id");
  WindowOptions one = windows_of(4, 2);
  one.series = {};
  one.time = "";
  EXPECT_SAYS(error_of([&] { split_windows(dataset, {"y"}, split_by(kBySeries, 0, 0.1), one); }),
              "needs the columns whose values tell series apart");
  const Split split = split_windows(dataset, {"y"}, split_by(kBySeries, 0, 0.1), windows_of(4, 2));
  EXPECT_EQ(split.train.count(), 25);
  EXPECT_EQ(split.test.count(), 25);
  EXPECT_SAYS(split.description, "; 25 windows)");
}

// Stations x sensors: a split by station keeps the sensors of one together.
TEST(WindowsBySeries, MayGoBySomeOfTheColumns) {
  const TemporaryFolder folder;
  constexpr int64_t kLength = 20;
  Dataset dataset =
      make_dataset(folder.path(),
                   {.rows = 8 * 3 * kLength, .float_columns = 3, .float_at = [](int64_t row, int c) {
                      return static_cast<float>(c == 0 ? 0 : c == 1 ? row / kLength % 3 : row / kLength / 3);
                    }});
  WindowOptions windows = windows_of(3, 1);
  windows.series = {"f1", "f2"};
  windows.time = "";
  SplitOptions split = split_by(kBySeries, 0.25, 0.25, 5);
  split.series_columns = {"f2"};
  const Split parts = split_windows(dataset, {"f0"}, split, windows);
  for (const RowSet* part : {&parts.train, &parts.validation, &parts.test}) {
    std::map<int64_t, int64_t> windows_of_station;
    for (const int64_t row : members_of(*part)) ++windows_of_station[row / kLength / 3];
    EXPECT_EQ(windows_of_station.size(), part == &parts.train ? 4u : 2u);
    for (const auto& [station, count] : windows_of_station) EXPECT_EQ(count, 3 * (kLength - 3)) << station;
  }
}

}  // namespace
}  // namespace troika

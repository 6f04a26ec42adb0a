#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "support/error_of.h"
#include "support/make_dataset.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/data/source.h"

namespace troika {
namespace {

constexpr int64_t kHour = 3'600'000'000'000;
constexpr int64_t kDay = 24 * kHour;
constexpr int64_t kStart = 15'706 * kDay;  // 2013-01-01
constexpr int64_t kNullInt = std::numeric_limits<int64_t>::min();
constexpr float kNull = std::numeric_limits<float>::quiet_NaN();

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Which part a row is in: 0 train, 1 validation, 2 test, -1 none; fails if in several.
int part_of(const Split& split, int64_t row) {
  const int parts = split.train.contains(row) + split.validation.contains(row) + split.test.contains(row);
  EXPECT_LE(parts, 1) << "row " << row;
  return split.train.contains(row)        ? 0
         : split.validation.contains(row) ? 1
         : split.test.contains(row)       ? 2
                                          : -1;
}

SplitOptions by_time(double validation, double test, std::string column = "i0") {
  return {
      .by = SplitOptions::By::time, .validation = validation, .test = test, .time_column = std::move(column)};
}

TEST(SplitRandom, MeetsTheSharesAndLeavesNullTargetsOut) {
  const TemporaryFolder folder;
  constexpr int64_t kRows = 50'000;
  const Dataset dataset = make_dataset(
      folder.path(),
      {.rows = kRows, .float_columns = 2, .rows_per_shard = 20'000, .float_at = [](int64_t row, int c) {
         return (c == 1 && row % 10 == 3) || (c == 0 && row == 5) ? kNull : 1.0f;
       }});
  const Split split = split_rows(dataset, {"f1", "f0"}, {.validation = 0.2, .test = 0.1, .seed = 3});
  EXPECT_EQ(split.null_targets, 5'001);
  int64_t counts[3] = {};
  for (int64_t row = 0; row < kRows; ++row) {
    const int part = part_of(split, row);
    ASSERT_EQ(part == -1, row % 10 == 3 || row == 5) << row;
    if (part >= 0) ++counts[part];
  }
  // 44,999 rows: a standard deviation of a share is below 0.002.
  EXPECT_NEAR(static_cast<double>(counts[1]) / 44'999, 0.2, 0.01);
  EXPECT_NEAR(static_cast<double>(counts[2]) / 44'999, 0.1, 0.01);
  EXPECT_CONTAINS(split.description, "5,001 rows without a target");
}

TEST(SplitRandom, IsAFunctionOfSeedAndRow) {
  const TemporaryFolder folder, other;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 2'000});
  const Dataset longer = make_dataset(other.path(), {.rows = 3'000, .rows_per_shard = 700});
  const auto parts = [](const Dataset& data, uint64_t seed) {
    const Split split = split_rows(data, {"f0"}, {.seed = seed});
    std::vector<int> of_rows;
    for (int64_t row = 0; row < 2'000; ++row) of_rows.push_back(part_of(split, row));
    return of_rows;
  };
  EXPECT_EQ(parts(dataset, 1), parts(dataset, 1));
  EXPECT_EQ(parts(dataset, 1), parts(longer, 1));
  EXPECT_NE(parts(dataset, 1), parts(dataset, 2));
}

TEST(SplitRandom, WithoutValidationOrTestKeepsAll) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 100});
  const Split split = split_rows(dataset, {"f0"}, {.validation = 0, .test = 0});
  EXPECT_EQ(split.train.count(), 100);
  EXPECT_EQ(split.validation.count(), 0);
  EXPECT_EQ(split.test.count(), 0);
}

TEST(SplitRandom, SaysThatAPartIsEmpty) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 3});
  const std::string error = error_of([&] { split_rows(dataset, {"f0"}, {.validation = 0, .test = 0.001}); });
  EXPECT_CONTAINS(error, "the test part would be empty");
  EXPECT_CONTAINS(error, "of 3 rows 3 have a target");
  const Dataset nulls =
      make_dataset(folder.path(), {.rows = 3, .float_at = [](int64_t, int) { return kNull; }});
  EXPECT_CONTAINS(error_of([&] { split_rows(nulls, {"f0"}, {}); }), "of 3 rows 0 have a target");
}

TEST(SplitRandom, RefusesSharesThatLeaveNothing) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 3});
  for (const auto& [validation, test] : {std::pair{0.5, 0.5}, {-0.1, 0.1}, {0.1, 1.0}, {std::nan(""), 0.1}}) {
    EXPECT_THROW(split_rows(dataset, {"f0"}, {.validation = validation, .test = test}), UsageError);
  }
}

// 100 days with 20 to 60 rows each, out of order in the file.
TEST(SplitTime, CutsBetweenWholeDays) {
  const TemporaryFolder folder;
  constexpr int64_t kRows = 4'000;
  const auto time_of = [](int64_t row, int) {
    return kStart +
           static_cast<int64_t>(uniform(1, static_cast<uint64_t>(row)) * 100 * static_cast<double>(kDay));
  };
  const Dataset dataset =
      make_dataset(folder.path(), {.rows = kRows,
                                   .rows_per_shard = 999,
                                   .float_at = [](int64_t row, int) { return row % 8 == 0 ? kNull : 0.0f; },
                                   .int_at = time_of});
  const Split split = split_rows(dataset, {"f0"}, by_time(0.15, 0.1));
  std::set<int64_t> days[3];
  int64_t counts[3] = {};
  for (int64_t row = 0; row < kRows; ++row) {
    const int part = part_of(split, row);
    ASSERT_EQ(part == -1, row % 8 == 0);
    if (part < 0) continue;
    days[part].insert(time_of(row, 0) / kDay);
    ++counts[part];
  }
  EXPECT_LT(*days[0].rbegin(), *days[1].begin());
  EXPECT_LT(*days[1].rbegin(), *days[2].begin());
  EXPECT_EQ(split.null_targets, 500);
  // Half a day's rows is the most that a cut can be off.
  EXPECT_NEAR(static_cast<double>(counts[1]), 0.15 * 3'500, 60);
  EXPECT_NEAR(static_cast<double>(counts[2]), 0.1 * 3'500, 30);
  EXPECT_CONTAINS(split.description, "whole UTC days");
  EXPECT_CONTAINS(split.description, "train 2013-01-01 to 2013-03-");
  EXPECT_CONTAINS(split.description, "500 rows without a target");
}

TEST(SplitTime, TakesTheNearestDay) {
  // Ten days of ten rows, but the last has 15: 105 rows. test = 0.1 asks for 10.5: the last day (15) is
  // nearer than two days (25); validation = 0.2 asks to begin at row 73.5: after day 7 (70 rows).
  const TemporaryFolder folder;
  const auto day = [](int64_t row, int) {
    return kStart + std::min<int64_t>(row / 10, 9) * kDay + row % 10 * kHour;
  };
  const Dataset dataset = make_dataset(folder.path(), {.rows = 105, .int_at = day});
  const Split split = split_rows(dataset, {"f0"}, by_time(0.2, 0.1));
  EXPECT_EQ(split.train.count(), 70);
  EXPECT_EQ(split.validation.count(), 20);
  EXPECT_EQ(split.test.count(), 15);
  EXPECT_CONTAINS(split.description, "test 2013-01-10 to 2013-01-10 (15 rows)");
}

TEST(SplitTime, GivesEachPartADayEvenIfOneDayHoldsAlmostAll) {
  const TemporaryFolder folder;
  const auto day = [](int64_t row, int) { return kStart + (row < 9 ? row : 9) * kDay; };
  const Dataset dataset = make_dataset(folder.path(), {.rows = 1'000, .int_at = day});
  const Split split = split_rows(dataset, {"f0"}, by_time(0.1, 0.1));
  EXPECT_EQ(split.test.count(), 991);
  EXPECT_EQ(split.train.count() + split.validation.count(), 9);
  EXPECT_GT(split.train.count(), 0);
  EXPECT_GT(split.validation.count(), 0);
}

TEST(SplitTime, CutsFewDaysByTheTimeAndNeverATie) {
  const TemporaryFolder folder;
  // Two days; 7 rows share each time.
  const auto time_of = [](int64_t row, int) { return kStart + row / 7 * (kHour / 4); };
  const Dataset dataset = make_dataset(folder.path(), {.rows = 1'000, .int_at = time_of});
  for (const auto& [validation, test] : {std::pair{0.1, 0.1}, {0.0, 0.333}, {0.4, 0.0}, {0.001, 0.001}}) {
    const Split split = split_rows(dataset, {"f0"}, by_time(validation, test));
    for (int64_t row = 1; row < 1'000; ++row) {
      ASSERT_LE(part_of(split, row - 1), part_of(split, row));
      if (time_of(row, 0) == time_of(row - 1, 0)) {
        ASSERT_EQ(part_of(split, row), part_of(split, row - 1)) << row;
      }
    }
    EXPECT_NEAR(static_cast<double>(split.validation.count()), 1'000 * validation, 7);
    EXPECT_NEAR(static_cast<double>(split.test.count()), 1'000 * test, 7);
    EXPECT_EQ(split.validation.count() > 0, validation > 0);
    EXPECT_EQ(split.test.count() > 0, test > 0);
  }
  EXPECT_CONTAINS(split_rows(dataset, {"f0"}, by_time(0.1, 0.1)).description,
                  "train 2013-01-01T00:00:00Z to 2013-01-02T");
}

TEST(SplitTime, TakesWholeNumbersInEitherArray) {
  const TemporaryFolder folder;
  Dataset dataset =
      make_dataset(folder.path(), {.rows = 100, .float_columns = 2, .float_at = [](int64_t row, int) {
                                     return static_cast<float>(99 - row);
                                   }});
  dataset.columns[1].type = ColumnType::integer;
  dataset.columns[2].type = ColumnType::integer;
  const Split falling = split_rows(dataset, {"f0"}, by_time(0.1, 0.2, "f1"));
  const Split rising = split_rows(dataset, {"f0"}, by_time(0.1, 0.2, "i0"));
  for (int64_t row = 0; row < 100; ++row) {
    EXPECT_EQ(part_of(rising, row), row < 70 ? 0 : row < 80 ? 1 : 2);
    EXPECT_EQ(part_of(falling, row), row < 20 ? 2 : row < 30 ? 1 : 0);
  }
  EXPECT_CONTAINS(rising.description, "validation 70 to 79 (10 rows)");
}

TEST(SplitTime, LeavesRowsWithoutATimeOut) {
  const TemporaryFolder folder;
  const auto time_of = [](int64_t row, int) { return row % 5 == 0 ? kNullInt : kStart + row * kDay; };
  const Dataset dataset = make_dataset(folder.path(), {.rows = 100, .int_at = time_of});
  const Split split = split_rows(dataset, {"f0"}, by_time(0.25, 0.25));
  EXPECT_EQ(split.train.count(), 40);
  EXPECT_EQ(split.validation.count(), 20);
  EXPECT_EQ(split.test.count(), 20);
  EXPECT_EQ(split.null_targets, 0);
  EXPECT_CONTAINS(split.description, "left out: 20 rows without a time");
}

TEST(SplitTime, WorksBefore1970AndAtTheEdges) {
  const TemporaryFolder folder;
  const auto time_of = [](int64_t row, int) {
    if (row == 0) return kNullInt + 1;
    if (row == 99) return std::numeric_limits<int64_t>::max();
    return (row - 50) * kDay / 2;
  };
  const Dataset dataset = make_dataset(folder.path(), {.rows = 100, .int_at = time_of});
  const Split split = split_rows(dataset, {"f0"}, by_time(0.1, 0.1));
  for (int64_t row = 1; row < 100; ++row) ASSERT_LE(part_of(split, row - 1), part_of(split, row));
  EXPECT_CONTAINS(split.description, "train 1677-09-21 to ");
  EXPECT_CONTAINS(split.description, "to 2262-04-11 (");
}

TEST(SplitTime, RefusesAColumnThatIsNoTime) {
  const TemporaryFolder folder;
  Dataset dataset = make_dataset(folder.path(), {.rows = 100, .float_columns = 2, .int_columns = 2});
  dataset.columns[1].type = ColumnType::category;
  dataset.columns[3].type = ColumnType::integer;
  const std::string error = error_of([&] { split_rows(dataset, {"f0"}, by_time(0.1, 0.1, "f1")); });
  EXPECT_CONTAINS(error, "\"f1\" is of type category");
  EXPECT_CONTAINS(error, "columns that could be it: i0, i1");
  EXPECT_THROW(split_rows(dataset, {"f0"}, by_time(0.1, 0.1, "f1")), UsageError);
  EXPECT_CONTAINS(error_of([&] { split_rows(dataset, {"f0"}, by_time(0.1, 0.1, "")); }), "none is named");
}

TEST(SplitTime, SaysThatThereAreTooFewTimes) {
  const TemporaryFolder folder;
  for (const int64_t times : {1, 2}) {
    const Dataset dataset = make_dataset(
        folder.path(), {.rows = 100, .int_at = [&](int64_t row, int) { return kStart + row % times; }});
    const std::string error = error_of([&] { split_rows(dataset, {"f0"}, by_time(0.1, 0.1)); });
    EXPECT_CONTAINS(error, "\"i0\" has too few different values to cut 100 rows");
  }
  const Dataset three = make_dataset(folder.path(), {.rows = 100, .int_at = [](int64_t row, int) {
                                                       return kStart + std::min<int64_t>(row, 2);
                                                     }});
  const Split split = split_rows(three, {"f0"}, by_time(0.1, 0.1));
  EXPECT_EQ(split.train.count(), 1);
  EXPECT_EQ(split.validation.count(), 1);
  EXPECT_EQ(split.test.count(), 98);
}

}  // namespace
}  // namespace troika

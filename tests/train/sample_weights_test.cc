#include "troika/train/sample_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "support/temporary_folder.h"
#include "train/support/flock.h"
#include "train/support/write_cell.h"
#include "troika/base/error.h"

namespace troika {
namespace {

constexpr int64_t kRows = 300;

class SampleWeightsTest : public testing::Test {
 protected:
  SampleWeightsTest() {
    write_flock(folder_ / "data", kRows);
    dataset_ = open_dataset(folder_ / "data");
    split_.train = RowSet(kRows);
    split_.validation = RowSet(kRows);
    split_.test = RowSet(kRows);
    for (int64_t row = 0; row < 200; row += 3) split_.train.set(row, true);
    scan_rows(dataset_, RowSet(kRows, true), [&](const RowBuffer& part) {
      all_.rows += part.rows;
      all_.floats.insert(all_.floats.end(), part.floats.begin(), part.floats.end());
      all_.ints.insert(all_.ints.end(), part.ints.begin(), part.ints.end());
    });
  }

  double value(const std::string& column, int64_t row) const {
    return all_.floats[static_cast<size_t>(row * dataset_.float_columns + dataset_.column(column).index)];
  }

  /// Windows of 4 rows and the one behind them, or plain rows.
  Recipe recipe(const std::string& target, bool windows) {
    Recipe recipe;
    recipe.data.targets = {target};
    recipe.data.time = "when";
    recipe.data.window = windows ? 4 : 0;
    return recipe;
  }

  SampleWeights weights(const Recipe& recipe) {
    plan_ = plan_features(dataset_, recipe.data, RowSet(kRows, true));
    return plan_weights(dataset_, recipe, plan_, split_);
  }

  std::string message(const Recipe& recipe) {
    try {
      weights(recipe);
    } catch (const Error& error) {
      std::string what = error.what();
      const std::string path = dataset_.folder.string();
      if (const size_t at = what.find(path); at != std::string::npos) what.replace(at, path.size(), "DATA");
      return what;
    }
    return "no error";
  }

  TemporaryFolder folder_;
  Dataset dataset_;
  RowBuffer all_;
  Split split_;
  FeaturePlan plan_;
};

TEST_F(SampleWeightsTest, NoneUnlessAskedFor) { EXPECT_FALSE(weights(recipe("good", false)).any()); }

TEST_F(SampleWeightsTest, BalancedClassesCountTheSameInAll) {
  for (const bool windows : {false, true}) {
    for (const char* target : {"good", "sort"}) {
      Recipe asked = recipe(target, windows);
      asked.train.class_weights = "balanced";
      const SampleWeights balanced = weights(asked);
      std::vector<double> counts(plan_.targets[0].classes.size());
      double samples = 0;
      for (int64_t row = 0; row < kRows; ++row) {
        if (!split_.train.contains(row)) continue;
        ++counts[static_cast<size_t>(value(target, row + (windows ? 4 : 0)))];
        ++samples;
      }
      ASSERT_EQ(balanced.of_class.size(), counts.size());
      for (size_t i = 0; i < counts.size(); ++i) {
        EXPECT_GT(counts[i], 0);
        EXPECT_NEAR(balanced.of_class[i] * counts[i], samples / static_cast<double>(counts.size()), 1e-9);
      }
    }
  }
}

TEST_F(SampleWeightsTest, AClassThatTrainingLacksCountsOne) {
  Recipe asked = recipe("sort", false);
  asked.train.class_weights = "balanced";
  double low = 0, high = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    split_.train.set(row, value("sort", row) != 1 && split_.train.contains(row));
    if (!split_.train.contains(row)) continue;
    ++(value("sort", row) == 0 ? low : high);
  }
  const SampleWeights balanced = weights(asked);
  EXPECT_EQ(balanced.of_class[1], 1);
  EXPECT_NEAR(balanced.of_class[0], (low + high) / (2 * low), 1e-12);
  EXPECT_NEAR(balanced.of_class[2], (low + high) / (2 * high), 1e-12);
}

TEST_F(SampleWeightsTest, AColumnTimesTheClass) {
  for (const bool windows : {false, true}) {
    Recipe asked = recipe("sort", windows);
    asked.data.weight = "count";
    asked.train.class_weights = "balanced";
    const SampleWeights both = weights(asked);
    const int64_t span = windows ? 5 : 1, answer = span - 1;
    RowBuffer rows;
    rows.rows = 3 * span;
    rows.floats.assign(all_.floats.begin(), all_.floats.begin() + rows.rows * dataset_.float_columns);
    rows.ints.assign(all_.ints.begin(), all_.ints.begin() + rows.rows * dataset_.int_columns);
    std::vector<double> got(3);
    encode_weights(both, plan_, dataset_, rows, got.data());
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t row = i * span + answer;
      EXPECT_EQ(got[static_cast<size_t>(i)],
                value("count", row) * both.of_class[static_cast<size_t>(value("sort", row))]);
    }
  }
}

TEST_F(SampleWeightsTest, WhatCantWeighIsNamed) {
  Recipe asked = recipe("y", false);
  asked.train.class_weights = "balanced";
  EXPECT_EQ(message(asked),
            "train.class_weights = \"balanced\" is for classes, but data.target \"y\" is of type float");
  asked = recipe("good", false);
  asked.data.weight = "kind";
  EXPECT_EQ(message(asked), "data.weight \"kind\" is of type category; a weight is a number");
  asked.data.weight = "empty";
  EXPECT_EQ(message(asked),
            "data.weight \"empty\" is null in row 1 of DATA, which is a sample: a weight is a finite number "
            "of 0 or more; "
            "leave such rows out when packing, or give them 0");
  asked.data.weight = "nothing";
  EXPECT_NE(message(asked).find("\"nothing\""), std::string::npos);
  // x has nulls and is below 0 in places: the first such row among the samples is named.
  asked.data.weight = "x";
  for (const bool windows : {false, true}) {
    asked.data.window = windows ? 4 : 0;
    int64_t row = 0;
    while (!split_.train.contains(row) || value("x", row + (windows ? 4 : 0)) >= 0) ++row;
    const double weight = value("x", row + (windows ? 4 : 0));
    EXPECT_EQ(
        message(asked),
        fmt::format("data.weight \"x\" is {} in row {} of DATA, which is a sample: a weight is a finite "
                    "number of 0 or more; leave such rows out when packing, or give them 0",
                    std::isnan(weight) ? "null" : fmt::format("{}", weight), row + (windows ? 4 : 0) + 1));
  }
  // Rows that are no samples may have any.
  asked.data.window = 0;
  for (int64_t row = 0; row < kRows; ++row) split_.train.set(row, value("x", row) >= 0);
  EXPECT_EQ(message(asked), "no error");
  for (int64_t row = 0; row < kRows; ++row) split_.validation.set(row, row == 299 || value("x", row) < 0);
  EXPECT_NE(message(asked), "no error");
}

// The column's own range says neither where its weights are, nor that some are infinite.
TEST_F(SampleWeightsTest, TrainingSamplesThatAllWeighNothingAreRefused) {
  Recipe asked = recipe("y", false);
  asked.data.weight = "flag";
  for (int64_t row = 0; row < kRows; ++row) {
    split_.train.set(row, row < 100 && value("flag", row) == 0);
    split_.test.set(row, row >= 100);
  }
  EXPECT_EQ(message(asked),
            fmt::format("data.weight \"flag\" is 0 in all {} training samples: nothing would be "
                        "learned; weigh some of them, or split otherwise",
                        split_.train.count()));
  split_.train.set(*std::ranges::find_if(std::views::iota(int64_t{0}),
                                         [&](int64_t row) { return value("flag", row) == 1; }),
                   true);
  EXPECT_EQ(message(asked), "no error");
}

TEST_F(SampleWeightsTest, AnInfiniteWeightIsNamed) {
  write_cell(dataset_, "count", 211, INFINITY);
  Recipe asked = recipe("y", false);
  asked.data.weight = "count";
  EXPECT_EQ(message(asked), "no error");  // no sample
  split_.validation.set(211, true);
  EXPECT_EQ(
      message(asked),
      "data.weight \"count\" is inf in row 212 of DATA, which is a sample: a weight is a finite number of 0 "
      "or more; leave such rows out when packing, or give them 0");
}

}  // namespace
}  // namespace troika

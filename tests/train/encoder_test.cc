#include "troika/train/encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/temporary_folder.h"
#include "train/support/flock.h"
#include "train/support/write_cell.h"
#include "troika/base/error.h"
#include "troika/train/loss.h"
#include "troika/train/metrics.h"

namespace troika {
namespace {

constexpr int64_t kRows = 500;

class EncoderTest : public testing::Test {
 protected:
  EncoderTest() {
    write_flock(folder_ / "data", kRows);
    dataset_ = open_dataset(folder_ / "data");
    train_ = RowSet(kRows);
    for (int64_t row = 0; row < 400; ++row) train_.set(row, row % 50 != 49);
  }

  FeaturePlan plan(const std::string& target, std::vector<std::string> features = {}) {
    DataRecipe recipe;
    recipe.targets = {target};
    recipe.features = std::move(features);
    return plan_features(dataset_, recipe, train_);
  }

  std::string message(const std::string& target, std::vector<std::string> features = {},
                      const std::string& loss = "") {
    try {
      choose_loss(loss, plan(target, std::move(features)), dataset_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  /// Row by row, as the dataset has them.
  RowBuffer rows(const RowSet& which) {
    RowBuffer all;
    scan_rows(dataset_, which, [&](const RowBuffer& part) {
      all.rows += part.rows;
      all.floats.insert(all.floats.end(), part.floats.begin(), part.floats.end());
      all.ints.insert(all.ints.end(), part.ints.begin(), part.ints.end());
    });
    return all;
  }

  TemporaryFolder folder_;
  Dataset dataset_;
  RowSet train_{0};
};

TEST_F(EncoderTest, EveryTypeHasItsEncoding) {
  const FeaturePlan p = plan("y", {"x", "count", "flag", "kind", "when"});
  std::vector<std::string> names;
  for (const FloatInput& input : p.floats) names.push_back(input.column + " " + name_of(input.encoding));
  EXPECT_EQ(names, (std::vector<std::string>{"x standardised", "count standardised", "flag boolean",
                                             "when standardised", "when sin_day", "when cos_day",
                                             "when sin_year", "when cos_year", "x mask"}));
  ASSERT_EQ(p.categories.size(), 1U);
  EXPECT_EQ(p.categories[0].values, 4);  // null, a, b, c
}

TEST_F(EncoderTest, ValuesAreStandardisedByTheTrainingRowsAlone) {
  const FeaturePlan p = plan("y", {"x", "kind", "flag", "big"});
  const RowBuffer all = rows(RowSet(kRows, true));
  const size_t width = p.floats.size();
  std::vector<float> floats(width * kRows);
  std::vector<int64_t> categories(kRows);
  encode_inputs(p, dataset_, all, floats.data(), categories.data());
  double sum = 0, squares = 0, big = 0;
  int64_t n = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const float x = all.floats[static_cast<size_t>(row * dataset_.float_columns)];
    const float kind = all.floats[static_cast<size_t>(row * dataset_.float_columns) + 3];
    const float* const out = &floats[static_cast<size_t>(row) * width];
    EXPECT_EQ(out[3], std::isnan(x) ? 1 : 0);
    EXPECT_EQ(categories[static_cast<size_t>(row)], std::isnan(kind) ? 0 : static_cast<int64_t>(kind) + 1);
    if (std::isnan(x)) {
      EXPECT_EQ(out[0], 0);
    }
    if (!train_.contains(row)) continue;
    big += out[2] * out[2];
    if (std::isnan(x)) continue;
    sum += out[0];
    squares += out[0] * out[0];
    ++n;
  }
  EXPECT_NEAR(sum / static_cast<double>(n), 0, 1e-6);
  EXPECT_NEAR(squares / static_cast<double>(n), 1, 1e-5);
  EXPECT_NEAR(big / static_cast<double>(train_.count()), 1,
              1e-5);  // a mean of 1e12 beside a deviation of 100
}

TEST_F(EncoderTest, TimestampsTurnRound) {
  const FeaturePlan p = plan("y", {"when"});
  const RowBuffer all = rows(RowSet(kRows, true));
  std::vector<float> out(p.floats.size() * kRows);
  encode_inputs(p, dataset_, all, out.data(), nullptr);
  const auto at = [&](int64_t row, size_t input) {
    return out[static_cast<size_t>(row) * p.floats.size() + input];
  };
  EXPECT_NEAR(at(0, 1), 0, 1e-6);  // midnight
  EXPECT_NEAR(at(0, 2), 1, 1e-6);
  EXPECT_NEAR(at(6, 1), 1, 1e-6);   // six o'clock
  EXPECT_NEAR(at(30, 1), 1, 1e-6);  // and the next day again
}

TEST_F(EncoderTest, TargetsGoThereAndBack) {
  const FeaturePlan p = plan("y");
  const RowBuffer some = rows(train_);
  std::vector<float> standard(static_cast<size_t>(some.rows));
  std::vector<double> raw(static_cast<size_t>(some.rows)), outputs;
  encode_targets(p, dataset_, some, standard.data());
  raw_targets(p, dataset_, some, raw.data());
  outputs.assign(standard.begin(), standard.end());
  MetricSums sums(p);
  sums.add(p, some.rows, 1, outputs.data(), raw.data(), 0);
  EXPECT_LT(sums.metrics(p)["rmse"], 1e-4);
  EXPECT_GT(sums.metrics(p)["r2"], 0.999999);
}

TEST_F(EncoderTest, AllColumnsButTheEmptyOneAndTheTargetByDefault) {
  const FeaturePlan p = plan("y");
  EXPECT_EQ(p.left_out, std::vector<std::string>{"empty"});
  for (const FloatInput& input : p.floats) EXPECT_NE(input.column, "y");
}

// A mean of infinity makes the whole column NaN, which the loss would show without a name.
TEST_F(EncoderTest, AnInfinityToTrainOnIsNamed) {
  int64_t trained = 0, other = 0;
  while (!train_.contains(trained)) ++trained;
  while (train_.contains(other)) ++other;
  write_cell(dataset_, "count", other, INFINITY);
  EXPECT_EQ(message("y", {"count"}), "no error");
  write_cell(dataset_, "count", trained, -INFINITY);
  EXPECT_EQ(
      message("y", {"count"}),
      fmt::format(
          "column \"count\" of {} is infinite in 1 of the {} rows to train on, so it has no mean: leave "
          "it out of data.features, or write numbers or nothing there and pack the CSV again",
          dataset_.folder.string(), train_.count()));
  EXPECT_EQ(message("y2", {"x"}), "no error");
  write_cell(dataset_, "y2", trained, INFINITY);
  EXPECT_NE(message("y2", {"x"}).find("column \"y2\""), std::string::npos);
}

TEST_F(EncoderTest, WhatCantBeUsedIsNamed) {
  EXPECT_NE(message("yy").find("\"y\""), std::string::npos) << message("yy");
  EXPECT_EQ(message("y", {"empty"}), "data.features: \"empty\" is null in all 500 rows; leave it out");
  EXPECT_EQ(message("empty"),
            "data.target \"empty\" is null in all 500 rows: there is nothing to learn from");
  EXPECT_EQ(message("when"),
            "data.target \"when\" is a timestamp; a target is a number, a boolean or a category");
  EXPECT_EQ(message("one"), "data.target \"one\" has one category only: there is nothing to predict");
  EXPECT_EQ(
      message("sort", {}, "mse"),
      "train.loss = \"mse\" needs a number, but data.target \"sort\" is of type category with 3 classes; use "
      "cross_entropy, or choose another target");
  EXPECT_EQ(message("sort", {}, "binary_cross_entropy"),
            "train.loss = \"binary_cross_entropy\" needs two classes, but data.target \"sort\" is of type "
            "category with "
            "3 classes; use cross_entropy, or choose another target");
  EXPECT_EQ(
      message("y", {}, "cross_entropy"),
      "train.loss = \"cross_entropy\" needs classes, but data.target \"y\" is of type float; use mse, mae or "
      "huber");
  EXPECT_EQ(
      message("good", {}, "huber"),
      "train.loss = \"huber\" needs a number, but data.target \"good\" is of type bool with 2 classes; use "
      "binary_cross_entropy, or choose another target");
}

}  // namespace
}  // namespace troika

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "support/temporary_folder.h"
#include "train/support/flock.h"
#include "troika/base/error.h"
#include "troika/train/encoder.h"

namespace troika {
namespace {

constexpr int64_t kRows = 200;

class FeaturesFileTest : public testing::Test {
 protected:
  FeaturesFileTest() {
    write_flock(folder_ / "data", kRows);
    dataset_ = open_dataset(folder_ / "data");
  }

  FeaturePlan plan(std::vector<std::string> targets, int64_t window) {
    DataRecipe recipe;
    recipe.targets = std::move(targets);
    recipe.window = window;
    recipe.horizon = 1;
    recipe.stride = 2;
    recipe.max_gap = 5400.25;
    recipe.series = {"flag"};
    recipe.time = "when";
    recipe.split.by = window > 0 ? "time" : "random";
    return plan_features(dataset_, recipe, RowSet(kRows, true));
  }

  Column& column(Dataset& dataset, const std::string& name) {
    return *std::ranges::find(dataset.columns, name, &Column::name);
  }

  /// What binding says, without the folder's name.
  std::string message(const FeaturePlan& plan, const Dataset& dataset) {
    FeaturePlan bound = plan;
    try {
      bind_features(bound, dataset);
    } catch (const UsageError& error) {
      EXPECT_EQ(bound, plan);  // nothing half-done
      std::string what = error.what();
      const std::string path = dataset.folder.string();
      if (const size_t at = what.find(path); at != std::string::npos) what.replace(at, path.size(), "DATA");
      return what;
    }
    return "no error";
  }

  TemporaryFolder folder_;
  Dataset dataset_;
};

TEST_F(FeaturesFileTest, RoundTripsOnceBound) {
  for (const FeaturePlan& before : {plan({"y", "y2"}, 0), plan({"sort"}, 0), plan({"good"}, 0),
                                    plan({"y", "y2"}, 6), plan({"sort"}, 6)}) {
    std::ofstream(folder_ / "features.json") << to_json(before);
    FeaturePlan after = read_features(folder_ / "features.json");
    bind_features(after, dataset_);
    EXPECT_EQ(after, before);
    EXPECT_EQ(to_json(after), to_json(before));
  }
}

TEST_F(FeaturesFileTest, ColumnsAreFoundByName) {
  const FeaturePlan before = plan({"y"}, 6);
  FeaturePlan after = feature_plan_from_json(to_json(before));
  Dataset other = dataset_;
  std::ranges::reverse(other.columns);
  column(other, "x").index = 3;
  column(other, "kind").index = 0;
  column(other, "big").index = 0;
  column(other, "when").index = 1;
  bind_features(after, other);
  for (const FloatInput& input : after.floats) {
    EXPECT_EQ(input.index, column(other, input.column).index) << input.column;
    EXPECT_EQ(input.storage, column(other, input.column).storage) << input.column;
  }
  EXPECT_EQ(std::ranges::find(after.categories, "kind", &CategoryInput::column)->index, 0);
}

TEST_F(FeaturesFileTest, WhatDiffersIsNamed) {
  const FeaturePlan p = plan({"y"}, 0);
  Dataset other = dataset_;
  std::erase_if(other.columns, [](const Column& c) { return c.name == "count"; });
  EXPECT_NE(message(p, other).find("\"count\""), std::string::npos) << message(p, other);
  other = dataset_;
  column(other, "count").type = ColumnType::category;
  EXPECT_EQ(message(p, other),
            "column \"count\" of DATA is of type category, but the model was trained with float or int");
  other = dataset_;
  column(other, "kind").type = ColumnType::boolean;
  EXPECT_EQ(message(p, other),
            "column \"kind\" of DATA is of type bool, but the model was trained with category");
  other = dataset_;
  column(other, "kind").categories = {"a", "c", "b"};
  EXPECT_EQ(
      message(p, other),
      "column \"kind\" of DATA has other categories than the model was trained with: number 1 is \"c\", "
      "expected \"b\"; pack the rows with the categories of the dataset trained with: troika pack NEW.csv "
      "-o NEW --like OLD");
  other = dataset_;
  column(other, "y").type = ColumnType::boolean;
  EXPECT_EQ(message(p, other),
            "column \"y\" of DATA is of type bool, but the model was trained with float or int");
  const FeaturePlan sorts = plan({"sort"}, 0);
  other = dataset_;
  column(other, "sort").categories.push_back("highest");
  EXPECT_EQ(message(sorts, other),
            "target \"sort\" of DATA has 4 classes, but the model was trained with 3: \"highest\" is new; "
            "troika pack NEW.csv -o NEW --like OLD makes it null");
  other = dataset_;
  column(other, "sort").categories[0] = "lowest";
  EXPECT_NE(message(sorts, other).find("number 0 is \"lowest\", expected \"low\""), std::string::npos);
  const FeaturePlan windows = plan({"y"}, 6);
  other = dataset_;
  std::erase_if(other.columns, [](const Column& c) { return c.name == "when"; });
  EXPECT_NE(message(windows, other).find("\"when\""), std::string::npos);
}

TEST_F(FeaturesFileTest, TargetsMayBeMissingAndNewCategoriesAreNull) {
  FeaturePlan p = feature_plan_from_json(to_json(plan({"y"}, 0)));
  Dataset other = dataset_;
  std::erase_if(other.columns, [](const Column& c) { return c.name == "y"; });
  column(other, "kind").categories.push_back("d");
  bind_features(p, other);
  EXPECT_EQ(p.targets[0].index, -1);
  RowBuffer rows;
  rows.rows = 4;
  rows.floats.assign(static_cast<size_t>(4 * other.float_columns), 0);
  rows.ints.assign(static_cast<size_t>(4 * other.int_columns), 0);
  const Column& kind = column(other, "kind");
  for (int64_t row = 0; row < 4; ++row) {
    rows.floats[static_cast<size_t>(row * other.float_columns + kind.index)] = static_cast<float>(row);
  }
  std::vector<float> floats(4 * p.floats.size());
  std::vector<int64_t> categories(4 * p.categories.size());
  encode_inputs(p, other, rows, floats.data(), categories.data());
  const auto at = static_cast<size_t>(std::ranges::find(p.categories, "kind", &CategoryInput::column) -
                                      p.categories.begin());
  for (size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(categories[row * p.categories.size() + at], row < 3 ? static_cast<int64_t>(row) + 1 : 0);
  }
}

TEST_F(FeaturesFileTest, DamagedFilesAreNamed) {
  const std::string good = to_json(plan({"y"}, 6));
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    std::ofstream(folder_ / "features.json") << text;
    try {
      read_features(folder_ / "features.json");
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("features.json doesn't say how columns become inputs: "), std::string::npos);
      return what.substr(what.find(": ") + 2);
    }
    return std::string("no error");
  };
  EXPECT_EQ(broken("\"standardised\"", "\"normal\""), "\"normal\" is no encoding");
  EXPECT_EQ(broken("\"window\": 6", "\"window\": 0"), "windows of 0 rows, 1 ahead, every 2");
  EXPECT_EQ(broken("\"deviation\": ", "\"deviation\": -0.5, \"was\": "),
            "a deviation is -0.5, expected above 0");
  EXPECT_NE(broken("\"targets\"", "\"goals\""), "no error");
  EXPECT_NE(broken("{", "["), "no error");
  EXPECT_NE(broken("\"encoding\": \"", "\"encoding\": 5, \"x\": \""), "no error");
}

}  // namespace
}  // namespace troika

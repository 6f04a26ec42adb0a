#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/temporary_folder.h"
#include "train/support/flock.h"
#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/train/encoder.h"

namespace troika {
namespace {

constexpr int64_t kRows = 400;
constexpr int64_t kNull = std::numeric_limits<int64_t>::min();
constexpr double kTurn = 6.283185307179586;

DataRecipe windows_recipe(int64_t window, int64_t horizon) {
  DataRecipe recipe;
  recipe.targets = {"y"};
  recipe.time = "when";
  recipe.window = window;
  recipe.horizon = horizon;
  recipe.split.by = "time";
  return recipe;
}

/// One input of one row, by the definition in encoder.h.
float naive(const FloatInput& input, const Dataset& dataset, const RowBuffer& rows, int64_t row) {
  double x = NAN;
  if (input.storage == Storage::floats) {
    x = static_cast<double>(rows.floats[static_cast<size_t>(row * dataset.float_columns + input.index)]);
  } else {
    const int64_t value = rows.ints[static_cast<size_t>(row * dataset.int_columns + input.index)];
    if (value != kNull) x = static_cast<double>(value) * (input.timestamp ? 1e-9 : 1);
  }
  if (input.encoding == Encoding::mask) return std::isnan(x) ? 1.0F : 0.0F;
  if (std::isnan(x)) return 0;
  switch (input.encoding) {
    case Encoding::standardised:
      return static_cast<float>((x - input.mean) * (1 / input.deviation));
    case Encoding::boolean:
    case Encoding::mask:
      return static_cast<float>(x);
    case Encoding::sin_day:
      return static_cast<float>(std::sin(kTurn * (x / 86400)));
    case Encoding::cos_day:
      return static_cast<float>(std::cos(kTurn * (x / 86400)));
    case Encoding::sin_year:
      return static_cast<float>(std::sin(kTurn * (x / 31556952)));
    case Encoding::cos_year:
      return static_cast<float>(std::cos(kTurn * (x / 31556952)));
  }
  return 0;
}

bool is_clock(Encoding encoding) {
  return encoding == Encoding::sin_day || encoding == Encoding::cos_day || encoding == Encoding::sin_year ||
         encoding == Encoding::cos_year;
}

/// Rows [start, start + span) for every start, one sample after the other.
RowBuffer samples_at(const Dataset& dataset, const std::vector<int64_t>& starts, int64_t span) {
  RowBuffer all;
  scan_rows(dataset, RowSet(dataset.rows, true), [&](const RowBuffer& part) {
    all.floats.insert(all.floats.end(), part.floats.begin(), part.floats.end());
    all.ints.insert(all.ints.end(), part.ints.begin(), part.ints.end());
  });
  RowBuffer out;
  out.rows = static_cast<int64_t>(starts.size()) * span;
  for (const int64_t start : starts) {
    const auto copy = [&](const auto& from, auto& to, int64_t columns) {
      to.insert(to.end(), from.begin() + start * columns, from.begin() + (start + span) * columns);
    };
    copy(all.floats, out.floats, dataset.float_columns);
    copy(all.ints, out.ints, dataset.int_columns);
  }
  return out;
}

class WindowsEncoderTest : public testing::Test {
 protected:
  WindowsEncoderTest() {
    write_flock(folder_ / "data", kRows);
    dataset_ = open_dataset(folder_ / "data");
  }
  FeaturePlan plan(const DataRecipe& recipe) { return plan_features(dataset_, recipe, RowSet(kRows, true)); }

  TemporaryFolder folder_;
  Dataset dataset_;
};

std::vector<std::string> names_of(const FeaturePlan& plan) {
  std::vector<std::string> names;
  for (const FloatInput& input : plan.floats) names.push_back(input.column + " " + name_of(input.encoding));
  for (const CategoryInput& input : plan.categories) names.push_back(input.column);
  return names;
}

bool has(const FeaturePlan& plan, const std::string& name) {
  return std::ranges::count(names_of(plan), name) > 0;
}

TEST_F(WindowsEncoderTest, InputsAndTargetsAreTheNaiveOnes) {
  for (const int64_t horizon : {0, 1, 3}) {
    DataRecipe recipe = windows_recipe(5, horizon);
    recipe.targets = {"y", "y2"};
    const FeaturePlan p = plan(recipe);
    const std::vector<int64_t> starts = {0, 7, 8, 20, 300};
    const int64_t span = 5 + horizon, first_ahead = horizon == 0 ? 4 : 5;
    const RowBuffer rows = samples_at(dataset_, starts, span);
    ASSERT_EQ(samples_in(p, rows), 5);
    const size_t width = p.floats.size(), classes = p.categories.size();
    std::vector<float> floats(5 * 5 * width, -7);
    std::vector<int64_t> categories(5 * 5 * classes, -7);
    encode_inputs(p, dataset_, rows, floats.data(), categories.data());
    for (int64_t sample = 0; sample < 5; ++sample) {
      for (int64_t t = 0; t < 5; ++t) {
        const int64_t row = sample * span + t;
        for (size_t i = 0; i < width; ++i) {
          const float got = floats[static_cast<size_t>(sample * 5 + t) * width + i];
          const float expected = naive(p.floats[i], dataset_, rows, row);
          if (is_clock(p.floats[i].encoding)) {
            EXPECT_NEAR(got, expected, 1e-5) << names_of(p)[i];
          } else {
            EXPECT_EQ(got, expected) << names_of(p)[i];
          }
        }
        for (size_t i = 0; i < classes; ++i) {
          const float code =
              rows.floats[static_cast<size_t>(row * dataset_.float_columns + p.categories[i].index)];
          EXPECT_EQ(categories[static_cast<size_t>(sample * 5 + t) * classes + i],
                    std::isnan(code) ? 0 : static_cast<int64_t>(code) + 1);
        }
      }
    }
    const auto steps = static_cast<size_t>(std::max<int64_t>(1, horizon));
    ASSERT_EQ(p.target_width(), static_cast<int64_t>(2 * steps));
    std::vector<double> raw(5 * 2 * steps);
    std::vector<float> standard(5 * 2 * steps);
    raw_targets(p, dataset_, rows, raw.data());
    encode_targets(p, dataset_, rows, standard.data());
    for (size_t sample = 0; sample < 5; ++sample) {
      for (size_t step = 0; step < steps; ++step) {
        for (size_t i = 0; i < 2; ++i) {
          const size_t row = sample * static_cast<size_t>(span) + static_cast<size_t>(first_ahead) + step;
          const TargetColumn& target = p.targets[i];
          const double y = rows.floats[row * static_cast<size_t>(dataset_.float_columns) +
                                       static_cast<size_t>(target.index)];
          const size_t at = sample * 2 * steps + step * 2 + i;
          EXPECT_EQ(raw[at], y);
          EXPECT_EQ(standard[at], static_cast<float>((y - target.mean) * (1 / target.deviation)));
        }
      }
    }
  }
}

TEST_F(WindowsEncoderTest, WhatIsAnInputByDefault) {
  const FeaturePlan ahead = plan(windows_recipe(5, 2));
  EXPECT_TRUE(has(ahead, "y standardised"));  // its past is known
  EXPECT_TRUE(has(ahead, "y mask"));
  EXPECT_TRUE(has(ahead, "when cos_day"));
  EXPECT_FALSE(has(ahead, "when standardised"));
  const FeaturePlan now = plan(windows_recipe(5, 0));
  EXPECT_FALSE(has(now, "y standardised"));
  EXPECT_TRUE(has(now, "when sin_year"));
  DataRecipe recipe = windows_recipe(5, 1);
  recipe.series = {"kind", "count"};
  recipe.weight = "x";
  const FeaturePlan series = plan(recipe);
  EXPECT_TRUE(has(series, "kind"));
  EXPECT_FALSE(has(series, "count standardised"));  // a number of a series is no amount
  EXPECT_FALSE(has(series, "x standardised"));
  recipe.split.by = "series";
  EXPECT_FALSE(has(plan(recipe), "kind"));  // those of the test are never seen in training
  recipe.features = {"count", "y"};
  EXPECT_EQ(names_of(plan(recipe)),
            (std::vector<std::string>{"count standardised", "y standardised", "y mask"}));
  recipe = windows_recipe(5, 1);
  recipe.targets = {"sort"};
  EXPECT_TRUE(has(plan(recipe), "sort"));
  EXPECT_EQ(plan(recipe).target_width(), 1);
  recipe.horizon = 2;
  try {
    plan(recipe);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "data.horizon = 2, but data.target \"sort\" is of type category: classes are predicted one "
                 "row ahead at the most; use horizon = 1");
  }
}

TEST_F(WindowsEncoderTest, InputsNeedNoTargetAndNoRowsAhead) {
  const FeaturePlan p = plan(windows_recipe(5, 3));
  const RowBuffer whole = samples_at(dataset_, {42, 47}, 8);  // row 49 has no target
  const RowBuffer seen = samples_at(dataset_, {42, 47}, 5);
  std::vector<float> floats(2 * 5 * p.floats.size()), short_floats(floats.size());
  std::vector<int64_t> categories(2 * 5 * p.categories.size()), short_categories(categories.size());
  encode_inputs(p, dataset_, whole, floats.data(), categories.data());
  encode_inputs(p, dataset_, seen, short_floats.data(), short_categories.data(), 5);
  EXPECT_EQ(floats, short_floats);
  EXPECT_EQ(categories, short_categories);
  std::vector<double> raw(2 * 3);
  EXPECT_THROW(raw_targets(p, dataset_, whole, raw.data()), Error);
}

// Any arrangement of columns goes through the same formula, however the loops cut it.
TEST(EncodeRows, AnyArrangementOfColumnsIsTheNaiveOne) {
  for (const int columns : {1, 3, 4, 17, 40}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      Dataset dataset;
      dataset.float_columns = columns + 2;
      dataset.int_columns = 2;
      RowBuffer rows;
      rows.rows = static_cast<int64_t>(seed) % 4 == 0 ? 1 : 23;
      for (int64_t i = 0; i < rows.rows * dataset.float_columns; ++i) {
        const double u = uniform(seed, static_cast<uint64_t>(i));
        rows.floats.push_back(u < 0.2    ? std::numeric_limits<float>::quiet_NaN()
                              : u < 0.21 ? std::numeric_limits<float>::infinity()
                                         : static_cast<float>(1e6 * u));
      }
      for (int64_t i = 0; i < rows.rows * 2; ++i) {
        const double u = uniform(seed + 100, static_cast<uint64_t>(i));
        rows.ints.push_back(u < 0.2 ? kNull : static_cast<int64_t>((u - 0.5) * 4e18));
      }
      FeaturePlan plan;
      for (int i = 0; i < columns; ++i) {
        const auto key = static_cast<uint64_t>(i);
        // In order, but for some that are elsewhere.
        const int index = uniform(seed + 200, key) < 0.2
                              ? static_cast<int>(uniform(seed + 300, key) * dataset.float_columns)
                              : i + 1;
        const auto encoding = static_cast<Encoding>(static_cast<int>(uniform(seed + 400, key) * 9) % 7);
        if (is_clock(encoding)) {
          plan.floats.push_back({"", encoding, Storage::ints, i % 2, true});
        } else if (uniform(seed + 500, key) < 0.15) {
          plan.floats.push_back({"", encoding, Storage::ints, i % 2, i % 2 == 0, 1e17, 3.7e17});
        } else {
          plan.floats.push_back({"", encoding, Storage::floats, index, false, 5e5 + i, 3e5 + i});
        }
        if (encoding == Encoding::boolean) plan.floats.back().mean = 0, plan.floats.back().deviation = 1;
      }
      std::vector<float> out(static_cast<size_t>(rows.rows * columns), -7);
      encode_inputs(plan, dataset, rows, out.data(), nullptr);
      for (int64_t row = 0; row < rows.rows; ++row) {
        for (int i = 0; i < columns; ++i) {
          const FloatInput& input = plan.floats[static_cast<size_t>(i)];
          const float got = out[static_cast<size_t>(row * columns + i)];
          const float expected = naive(input, dataset, rows, row);
          if (is_clock(input.encoding)) {
            EXPECT_NEAR(got, expected, 1e-4);  // std::sin of a time in seconds is the rough one here
          } else {
            EXPECT_EQ(got, expected) << columns << " columns, seed " << seed << ", input " << i;
          }
        }
      }
    }
  }
}

TEST(EncodeRows, ClocksTurnExactly) {
  Dataset dataset;
  dataset.int_columns = 1;
  FeaturePlan plan;
  for (const Encoding encoding :
       {Encoding::sin_day, Encoding::cos_day, Encoding::sin_year, Encoding::cos_year}) {
    plan.floats.push_back({"t", encoding, Storage::ints, 0, true});
  }
  RowBuffer rows;
  constexpr int64_t kDay = 86'400'000'000'000;
  for (int64_t eighth = -16; eighth <= 16; ++eighth) rows.ints.push_back(eighth * kDay / 8);
  rows.rows = static_cast<int64_t>(rows.ints.size());
  std::vector<float> out(rows.ints.size() * 4);
  encode_inputs(plan, dataset, rows, out.data(), nullptr);
  constexpr float kHalf = 0.70710678F;
  constexpr float kSin[] = {0, kHalf, 1, kHalf, 0, -kHalf, -1, -kHalf};
  for (int64_t eighth = -16; eighth <= 16; ++eighth) {
    const auto at = static_cast<size_t>(eighth + 16) * 4;
    EXPECT_FLOAT_EQ(out[at], kSin[(eighth + 16) % 8]) << eighth;
    EXPECT_FLOAT_EQ(out[at + 1], kSin[(eighth + 18) % 8]) << eighth;
    const double year = kTurn * static_cast<double>(eighth) / 8 / 365.2425;
    EXPECT_NEAR(out[at + 2], std::sin(year), 1e-7);
    EXPECT_NEAR(out[at + 3], std::cos(year), 1e-7);
  }
}

}  // namespace
}  // namespace troika

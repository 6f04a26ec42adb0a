#include "troika/train/baseline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/error_of.h"
#include "support/make_dataset.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"

namespace troika {
namespace {

constexpr float kNull = std::numeric_limits<float>::quiet_NaN();

RowSet set_of(int64_t universe, const std::vector<int64_t>& rows) {
  RowSet set(universe);
  for (const int64_t row : rows) set.set(row, true);
  return set;
}

class BaselineTest : public testing::Test {
 protected:
  /// One number column f0 (and one of class codes f1 where a test wants it).
  Dataset series(std::vector<float> values, std::vector<float> codes = {}) {
    DatasetShape shape;
    shape.rows = static_cast<int64_t>(values.size());
    shape.float_columns = 2;
    shape.int_columns = 0;
    shape.rows_per_shard = 5;  // windows lie across shards
    shape.float_at = [=](int64_t row, int column) {
      const auto at = static_cast<size_t>(row);
      return column == 0 ? values[at] : codes.empty() ? 0 : codes[at];
    };
    return make_dataset(folder_.path(), shape);
  }

  static FeaturePlan plan(int64_t window, int64_t horizon, double mean = 0) {
    FeaturePlan plan;
    plan.targets.push_back({"f0", Storage::floats, 0, mean, 1, {}});
    plan.windows.window = window;
    plan.windows.horizon = horizon;
    return plan;
  }

  static Split split(int64_t rows, const std::vector<int64_t>& validation,
                     const std::vector<int64_t>& test = {}, const std::vector<int64_t>& train = {}) {
    Split split;
    split.train = set_of(rows, train);
    split.validation = set_of(rows, validation);
    split.test = set_of(rows, test);
    return split;
  }

  TemporaryFolder folder_;
};

TEST_F(BaselineTest, MeanOfTheTrainingRowsOnBothParts) {
  const Dataset dataset = series({1, 2, 3, 4, 6, 10});
  const auto found = measure_baselines(plan(0, 1, 3), dataset, split(6, {0, 3}, {5}), {});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "mean");
  EXPECT_EQ(found[0].what, "mean of the training rows");
  EXPECT_NEAR((*found[0].validation)["rmse"], std::sqrt(2.5), 1e-15);
  EXPECT_NEAR((*found[0].validation)["mae"], 1.5, 1e-15);
  EXPECT_EQ((*found[0].test)["rmse"], 7);
  EXPECT_EQ(found[0].test->samples, 1);
  EXPECT_EQ(to_beat(found), "to beat on the validation rows: mean rmse 1.581");
}

TEST_F(BaselineTest, MostFrequentClassWithTheSharesAsProbabilities) {
  const Dataset dataset = series({0, 0, 0, 0, 0, 0, 0}, {2, 2, 0, 2, 0, 2, 1});
  FeaturePlan p;
  p.kind = TargetKind::classes;
  p.targets.push_back({"f1", Storage::floats, 1, 0, 1, {"a", "b", "c"}});
  const auto found = measure_baselines(p, dataset, split(7, {4, 5, 6}, {}, {0, 1, 2, 3}), {});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, "most frequent class of the training rows, c");
  EXPECT_FALSE(found[0].test);
  const Metrics& metrics = *found[0].validation;
  EXPECT_NEAR(metrics["accuracy"], 1.0 / 3, 1e-15);
  // Counts 1, 0, 3 and one more of each: 2/7, 1/7, 4/7.
  EXPECT_NEAR(metrics["log_loss"], -(std::log(2.0 / 7) + std::log(4.0 / 7) + std::log(1.0 / 7)) / 3, 1e-12);
  EXPECT_EQ(metrics["auc"], 0.5);
  EXPECT_NEAR(metrics["f1"], 0.5 / 3, 1e-15);  // of c alone: 2 x 1 / (2 x 1 + 2 alarms)
  const auto alone = measure_baselines(p, dataset, split(7, {5}, {}, {0, 1, 2, 3}), {});
  EXPECT_TRUE(std::isnan((*alone[0].validation)["auc"]));
}

TEST_F(BaselineTest, PersistenceAndSeasonByHand) {
  const Dataset dataset = series({1, 5, 2, 7, 3, 9, 4, 8, 6, 11, 5, 12});
  const auto found = measure_baselines(plan(4, 3), dataset, split(12, {0, 5}), 2);
  ASSERT_EQ(found.size(), 3U);
  // Window 1 5 2 7, then 3 9 4; window 9 4 8 6, then 11 5 12.
  const Metrics& last = *found[1].validation;
  EXPECT_EQ(found[1].name, "persistence");
  EXPECT_NEAR(last["rmse"], std::sqrt(91.0 / 6), 1e-12);  // errors 4 -2 3, -5 1 -6
  EXPECT_NEAR(last["mae"], 21.0 / 6, 1e-12);
  EXPECT_NEAR(*find_figure(last.per_horizon[0].values, "rmse"), std::sqrt(41.0 / 2), 1e-12);
  EXPECT_NEAR(*find_figure(last.per_horizon[2].values, "rmse"), std::sqrt(45.0 / 2), 1e-12);
  // A season of two rows: 2 7 2 and 8 6 8; the third step goes back two seasons.
  const Metrics& season = *found[2].validation;
  EXPECT_EQ(found[2].name, "seasonal");
  EXPECT_EQ(found[2].what, "value 2 rows before");
  EXPECT_NEAR(season["rmse"], std::sqrt(35.0 / 6), 1e-12);  // errors -1 -2 -2, -3 1 -4
  EXPECT_NEAR(*find_figure(season.per_horizon[1].values, "mae"), 1.5, 1e-12);
  EXPECT_NEAR(*find_figure(season.per_horizon[2].values, "mae"), 3, 1e-12);
  EXPECT_EQ(season.samples, 2);
  EXPECT_EQ(strongest(found), &found[2]);
}

TEST_F(BaselineTest, AgainstALoopOverWindowsHorizonsAndSeasons) {
  constexpr int64_t kRows = 60;
  std::vector<float> values;
  for (int64_t row = 0; row < kRows; ++row) values.push_back(static_cast<float>((row * row * 7 + row) % 31));
  const Dataset dataset = series(values);
  for (const int64_t window : {1, 2, 7}) {
    for (const int64_t horizon : {1, 3, 16}) {
      for (int64_t season = 1; season <= window; season += 3) {
        const std::vector<int64_t> starts = {0, 4, 5, 23, kRows - window - horizon};
        const auto found =
            measure_baselines(plan(window, horizon), dataset, split(kRows, {}, starts), season);
        double last = 0, before = 0;
        for (const int64_t start : starts) {
          for (int64_t row = start + window; row < start + window + horizon; ++row) {
            int64_t source = row;
            while (source >= start + window) source -= season;
            const float y = values[static_cast<size_t>(row)];
            last += std::abs(values[static_cast<size_t>(start + window - 1)] - y);
            before += std::abs(values[static_cast<size_t>(source)] - y);
          }
        }
        const double n = static_cast<double>(static_cast<int64_t>(starts.size()) * horizon);
        EXPECT_NEAR((*found[1].test)["mae"], last / n, 1e-12) << window << " " << horizon;
        EXPECT_NEAR((*found[2].test)["mae"], before / n, 1e-12) << window << " " << horizon << " " << season;
      }
    }
  }
}

TEST_F(BaselineTest, ANullWhereAGuessComesFromLeavesTheSampleOut) {
  const Dataset dataset = series({1, 5, 2, kNull, 3, 9, 4, 8, 6, 11, 5, 12});
  const auto found = measure_baselines(plan(4, 3), dataset, split(12, {0, 2, 5}), 4);
  EXPECT_EQ(found[0].validation->samples, 3);
  EXPECT_EQ(found[1].validation->samples, 2);  // of window 0 the last value is null
  EXPECT_EQ(found[1].validation->left_out, 1);
  EXPECT_EQ(found[2].validation->samples, 2);  // of window 2 the second step looks at it
  EXPECT_EQ(found[2].validation->left_out, 1);
  // Windows 2 and 5: 9 for 4 8 6 would be window 2's rows 6, 7, 8; 6 for 11 5 12.
  EXPECT_NEAR((*found[1].validation)["mae"], (5 + 1 + 3 + 5 + 1 + 6) / 6.0, 1e-12);
}

TEST_F(BaselineTest, OfAWholeNumberColumnAndItsNulls) {
  DatasetShape shape;
  shape.rows = 8;
  shape.int_at = [](int64_t row, int) {
    return row == 2 ? std::numeric_limits<int64_t>::min() : (int64_t{1} << 40) + row * row;
  };
  const Dataset dataset = make_dataset(folder_.path(), shape);
  FeaturePlan p = plan(2, 1);
  p.targets[0] = {"i0", Storage::ints, 0, 0, 1, {}};
  const auto found = measure_baselines(p, dataset, split(8, {1, 2, 5}), {});
  EXPECT_EQ(found[1].validation->left_out, 1);               // rows 1 2 | 3
  EXPECT_EQ((*found[1].validation)["mae"], (7 + 13) / 2.0);  // 16 - 9 and 49 - 36
}

TEST_F(BaselineTest, OfClassesInWindows) {
  const Dataset dataset = series(std::vector<float>(8), {0, 1, 1, 0, 1, 1, 1, 0});
  FeaturePlan p = plan(2, 1);
  p.kind = TargetKind::binary;
  p.targets[0] = {"f1", Storage::floats, 1, 0, 1, {"false", "true"}};
  // Training windows at 0 and 3 have their answers in rows 2 and 5: true twice, and one more of each.
  const auto found = measure_baselines(p, dataset, split(8, {2, 3, 4, 5}, {}, {0, 3}), 2);
  EXPECT_EQ(found[0].what, "most frequent class of the training rows, true");
  EXPECT_NEAR((*found[0].validation)["log_loss"], -(3 * std::log(0.75) + std::log(0.25)) / 4, 1e-12);
  EXPECT_EQ((*found[0].validation)["accuracy"], 0.75);
  EXPECT_EQ((*found[1].validation)["accuracy"], 0.5);  // 0 1 1 1 for 1 1 1 0
  EXPECT_NEAR((*found[1].validation)["f1"], 2.0 / 3, 1e-15);
  EXPECT_EQ((*found[2].validation)["accuracy"], 0.5);  // 1 0 1 1 for 1 1 1 0
  EXPECT_FALSE(find_figure(found[1].validation->values, "log_loss"));
}

TEST_F(BaselineTest, NothingOfThePastIsKnownWithHorizonZero) {
  const Dataset dataset = series({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(measure_baselines(plan(3, 0), dataset, split(6, {0, 1}), {}).size(), 1U);
}

TEST_F(BaselineTest, AnotherColumnAsTheGuess) {
  Dataset dataset = series({1, 2, kNull, 4, 5}, {3, 2, 1, 0, kNull});
  const Metrics found = evaluate_column_baseline(dataset, RowSet(5, true), "f0", "f1");
  EXPECT_EQ(found.samples, 3);
  EXPECT_EQ(found["mae"], 2);  // 2, 0, 4
  dataset.columns[1].type = ColumnType::category;
  EXPECT_EQ(error_of([&] { evaluate_column_baseline(dataset, RowSet(5, true), "f0", "f1"); }),
            "column \"f1\" is of type category; only numbers can be compared as predictions");
}

TEST(Season, IsADayIfItFitsOrWhatTheRecipeSays) {
  WindowOptions windows;
  windows.window = 48;
  EXPECT_EQ(rows_of_a_day(windows, 3600), 24);
  EXPECT_EQ(rows_of_a_day(windows, 1800), 48);
  EXPECT_EQ(rows_of_a_day(windows, 900), std::nullopt) << "96 rows don't fit";
  EXPECT_EQ(rows_of_a_day(windows, 7000), std::nullopt) << "no whole number";
  EXPECT_EQ(rows_of_a_day(windows, 86400), std::nullopt) << "that is persistence";
  EXPECT_EQ(rows_of_a_day(windows, 0), std::nullopt);
  DataRecipe recipe;
  EXPECT_EQ(choose_season(recipe, windows, 3600), 24);
  recipe.season = 7;
  EXPECT_EQ(choose_season(recipe, windows, 3600), 7);
  recipe.season = 49;
  EXPECT_EQ(error_of([&] { choose_season(recipe, windows, 3600); }),
            "data.season = 49 doesn't fit in data.window = 48: the seasonal baseline takes a value of the "
            "window; make the window longer, or leave the season out");
  windows.horizon = 0;
  EXPECT_THROW(choose_season(recipe, windows, 3600), UsageError);
}

TEST(Strongest, NoUnitDecidesBetweenSeveralTargets) {
  const auto baseline = [](const char* name, double a, double b) {
    Metrics metrics;
    metrics.values = {{"a.rmse", a}, {"a.mae", 0}, {"b.rmse", b}};
    return Baseline{name, "", {}, metrics};
  };
  const std::vector<Baseline> found = {baseline("x", 1, 1000), baseline("y", 3, 100),
                                       baseline("z", 0.5, 2000)};
  EXPECT_EQ(strongest(found)->name, "y");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(strongest({baseline("x", nan, 1)}), nullptr);
  EXPECT_EQ(strongest({}), nullptr);
}

}  // namespace
}  // namespace troika

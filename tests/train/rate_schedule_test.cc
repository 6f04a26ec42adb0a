#include "troika/train/rate_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/error_of.h"
#include "troika/base/error.h"

namespace troika {
namespace {

TrainRecipe recipe_of(const std::string& schedule, int64_t warmup = 0, double rate = 1) {
  TrainRecipe recipe;
  recipe.learning_rate = rate;
  recipe.rate_schedule = schedule;
  recipe.warmup = warmup;
  return recipe;
}

void expect_rates(const TrainRecipe& recipe, int64_t total_steps, const std::vector<double>& expected) {
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(learning_rate_at(recipe, static_cast<int64_t>(step), total_steps), expected[step], 1e-15)
        << recipe.rate_schedule << ", step " << step;
  }
}

// By hand; the last of each list is what comes after the run.
TEST(RateSchedule, TablesOfEightSteps) {
  expect_rates(recipe_of("none"), 8, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  expect_rates(recipe_of("linear"), 8, {1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0, 0});
  const double s = std::sqrt(0.5), a = 0.9238795325112867, b = 0.3826834323650898;  // of pi/4, pi/8, 3 pi/8
  expect_rates(recipe_of("cosine"), 8,
               {1, (1 + a) / 2, (1 + s) / 2, (1 + b) / 2, 0.5, (1 - b) / 2, (1 - s) / 2, (1 - a) / 2, 0, 0});
  expect_rates(recipe_of("step"), 8, {1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01});
  expect_rates(recipe_of("step"), 9, {1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01});
  expect_rates(recipe_of("exponential"), 4, {1, 0.31622776601683794, 0.1, 0.031622776601683794, 0.01, 0.01});
}

TEST(RateSchedule, WarmUpEndsAtTheFullRateAndTheScheduleBeginsThere) {
  expect_rates(recipe_of("linear", 4), 8, {0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25, 0});
  expect_rates(recipe_of("none", 2), 5, {0.5, 1, 1, 1, 1, 1});
  expect_rates(recipe_of("cosine", 1), 3, {1, 1, 0.5, 0});
  expect_rates(recipe_of("step", 3), 6, {1.0 / 3, 2.0 / 3, 1, 1, 0.1, 0.01});
}

TEST(RateSchedule, EndsAreExact) {
  const double rate = 0.0017;
  for (const char* schedule : {"none", "cosine", "linear", "step", "exponential"}) {
    for (const int64_t total : {1, 2, 7, 1000}) {
      EXPECT_EQ(learning_rate_at(recipe_of(schedule, 0, rate), 0, total), rate) << schedule << " " << total;
      EXPECT_GT(learning_rate_at(recipe_of(schedule, 0, rate), total - 1, total), 0) << schedule;
    }
    const TrainRecipe warm = recipe_of(schedule, 7, rate);
    EXPECT_EQ(learning_rate_at(warm, 0, 20), rate * (1.0 / 7)) << schedule;
    EXPECT_EQ(learning_rate_at(warm, 6, 20), rate) << schedule;
    EXPECT_EQ(learning_rate_at(warm, 7, 20), rate) << schedule;
  }
  EXPECT_EQ(learning_rate_at(recipe_of("cosine", 5, rate), 20, 20), 0);
  EXPECT_EQ(learning_rate_at(recipe_of("linear", 5, rate), 20, 20), 0);
  EXPECT_EQ(learning_rate_at(recipe_of("exponential", 5, rate), 20, 20), rate * 0.01);
}

TEST(RateSchedule, NeverGrowsAfterTheWarmUp) {
  for (const char* schedule : {"none", "cosine", "linear", "step", "exponential"}) {
    const TrainRecipe recipe = recipe_of(schedule, 10);
    for (int64_t step = 1; step < 110; ++step) {
      const double before = learning_rate_at(recipe, step - 1, 100),
                   now = learning_rate_at(recipe, step, 100);
      if (step < 10) {
        EXPECT_GT(now, before) << schedule << " " << step;
      } else {
        EXPECT_LE(now, before) << schedule << " " << step;
      }
    }
  }
}

TEST(RateSchedule, AWarmUpThatTakesTheWholeRunIsRefused) {
  EXPECT_EQ(error_of([] { check_rate_schedule(recipe_of("cosine", 80), 80); }),
            "train.warmup = 80 leaves none of the run's 80 steps at the full learning rate: choose at most "
            "79, or train longer");
  EXPECT_EQ(error_of([] { check_rate_schedule(recipe_of("none", 2), 1); }),
            "train.warmup = 2 leaves none of the run's 1 step at the full learning rate: choose at most 0, "
            "or train longer");
  check_rate_schedule(recipe_of("cosine", 79), 80);
  check_rate_schedule(recipe_of("none"), 1);
}

}  // namespace
}  // namespace troika

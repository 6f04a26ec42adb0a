#include "troika/train/rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr double kExponentialEnd = 0.01;

/// The factor `done` of `all` steps after the warm-up.
double factor_at(const std::string& schedule, int64_t done, int64_t all) {
  const double part = static_cast<double>(done) / static_cast<double>(all);
  if (schedule == "none") return 1;
  if (schedule == "cosine") return (1 + std::cos(std::numbers::pi * part)) / 2;
  if (schedule == "linear") return static_cast<double>(all - done) / static_cast<double>(all);
  if (schedule == "exponential") return std::pow(kExponentialEnd, part);
  TROIKA_ASSERT(schedule == "step", schedule);
  const int64_t thirds = 3 * done / all;
  return thirds == 0 ? 1 : thirds == 1 ? 0.1 : 0.01;
}

}  // namespace

double learning_rate_at(const TrainRecipe& recipe, int64_t step, int64_t total_steps) {
  TROIKA_ASSERT(step >= 0 && total_steps >= 1, fmt::format("step {} of {}", step, total_steps));
  if (step < recipe.warmup) {
    return recipe.learning_rate * (static_cast<double>(step + 1) / static_cast<double>(recipe.warmup));
  }
  const int64_t all = std::max<int64_t>(total_steps - recipe.warmup, 1);
  const int64_t done = std::min(step - recipe.warmup, all);
  return recipe.learning_rate * factor_at(recipe.rate_schedule, done, all);
}

void check_rate_schedule(const TrainRecipe& recipe, int64_t total_steps) {
  if (recipe.warmup < total_steps || recipe.warmup == 0) return;
  fail_usage(
      "train.warmup = {} leaves none of the run's {} step{} at the full learning rate: choose at most {}, or "
      "train longer",
      recipe.warmup, total_steps, total_steps == 1 ? "" : "s", total_steps - 1);
}

}  // namespace troika

// The learning rate of each step: warm-up, then one of the recipe's schedules. A pure function of the step's
// number, so that a resumed run goes on with the rate of the unbroken one. Thread-safe.
#pragma once

#include <cstdint>

#include "troika/train/recipe.h"

namespace troika {

/// The rate of the update `step`, counted from 0, of a run of `total_steps`. In the first `train.warmup`
/// steps it grows by learning_rate / warmup a step and ends at learning_rate. Of the D steps that follow,
/// step t (from 0) has learning_rate times
///   none         1
///   cosine       (1 + cos(pi t / D)) / 2: 1 in the first, 0 just after the last (arxiv.org/abs/1608.03983)
///   linear       1 - t / D: 0 just after the last
///   step         1 in the first third, 0.1 in the second, 0.01 in the last
///   exponential  0.01 ^ (t / D): 0.01 just after the last
/// From total_steps on the rate stays what it is there.
double learning_rate_at(const TrainRecipe& recipe, int64_t step, int64_t total_steps);

/// Throws UsageError if the warm-up leaves no step at the full rate.
void check_rate_schedule(const TrainRecipe& recipe, int64_t total_steps);

}  // namespace troika

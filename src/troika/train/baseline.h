// The obvious answers that a model has to beat: what a person would guess who has no model. No torch.
// Threading: values and pure functions; thread-safe as such.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troika/data/source.h"
#include "troika/train/metrics.h"

namespace troika {

struct Baseline {
  std::string name;  // "mean", "majority", "persistence" or "seasonal"
  std::string what;  // what it predicts: "mean of the training rows", "last known value", ...
  std::optional<Metrics> validation, test;  // absent: there are no such rows
};

/// Numbers: the mean of the training rows. Classes: the most frequent one of the training rows, with the
/// classes' shares there as its probabilities (one more of each, so that none is impossible). Tokens: the
/// same of bytes, and no other. Windows with horizon >= 1 also have the last known value of the target for
/// every step ahead ("persistence") and, with `season` rows, the value that many rows before the predicted
/// row, or as many seasons before as it takes to lie inside the window ("seasonal"). A sample whose value is
/// null there is left out of that baseline and counted. One pass over the rows, in a bounded memory.
/// TROIKA_ASSERTs that a season fits in the window.
std::vector<Baseline> measure_baselines(const FeaturePlan& plan, const Dataset& dataset, const Split& split,
                                        std::optional<int64_t> season);

/// Rows of a day, if they are a whole number from 2 up that fits in the window; `step_seconds`: between two
/// rows, 0 if unknown.
std::optional<int64_t> rows_of_a_day(const WindowOptions& windows, double step_seconds);

/// The season in rows: what the recipe says, else rows_of_a_day. Throws UsageError if what it says can't be
/// used with these windows.
std::optional<int64_t> choose_season(const DataRecipe& recipe, const WindowOptions& windows,
                                     double step_seconds);

/// Seconds between two rows of a series (the median that the split has found); 0 without windows or if the
/// time column is no timestamp.
double seconds_between_rows(const Dataset& dataset, const WindowOptions& windows, const Split& split);

/// How bad a prediction is, to rank several of the same samples: the rmse (of several targets the geometric
/// mean, which no unit changes), bits per byte, or 1 - accuracy. NaN if it isn't known.
double error_of(const Metrics& metrics);

/// The one with the smallest error on the test rows, else on the validation rows; null if there is none.
const Baseline* strongest(const std::vector<Baseline>& baselines);

/// "to beat on the validation rows: mean rmse 17.9; persistence rmse 3.2"; "" if there is nothing to beat.
std::string to_beat(const std::vector<Baseline>& baselines);

}  // namespace troika

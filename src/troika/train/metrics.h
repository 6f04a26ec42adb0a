// How good predictions are, in the target's own unit. Sums that add up over pieces, and what is made of them.
// No torch. Threading: values and pure functions; thread-safe as such.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troika/train/encoder.h"

namespace troika {

/// Named figures in a fixed order, such as rmse, mae and r2.
struct Metrics {
  int64_t samples = 0;
  std::vector<std::pair<std::string, double>> values;
  /// The figure of that name; TROIKA_ASSERTs that it is there.
  double operator[](std::string_view name) const;
};

/// {"samples": ..., "rmse": ...}; figures that aren't finite are null.
nlohmann::ordered_json to_json(const Metrics& metrics);

/// "rmse 17.9  mae 11.0  r2 0.83".
std::string to_string(const Metrics& metrics);

/// What has to be added up, always in the same order of pieces so that the result has the same bits: for each
/// number target (errors squared and absolute, y and its square), or for classes (right ones, log loss).
/// Fixed size per plan.
class MetricSums {
 public:
  explicit MetricSums(const FeaturePlan& plan);

  /// `outputs` are the model's [rows, width], in standardised units for numbers, logits for classes;
  /// `targets` as raw_targets gives them; `loss` is the sum of the samples' losses.
  void add(const FeaturePlan& plan, int64_t rows, int64_t width, const double* outputs, const double* targets,
           double loss);
  /// Predictions in the target's own unit, or class numbers. Adds no log loss.
  void add_plain(const FeaturePlan& plan, int64_t rows, const double* predictions, const double* targets);

  std::vector<double>& numbers() { return numbers_; }
  const std::vector<double>& numbers() const { return numbers_; }
  void operator+=(const MetricSums& other);

  int64_t samples() const;
  double mean_loss() const;
  /// rmse, mae, r2 (prefixed "<column>." if there are several), or accuracy and log_loss.
  Metrics metrics(const FeaturePlan& plan, bool with_log_loss = true) const;

 private:
  std::vector<double> numbers_;  // samples, loss, then the rest
};

/// The obvious answer: the training rows' mean, or their most frequent class. `what` says which.
struct Baseline {
  std::string what;
  Metrics metrics;
};
Baseline constant_baseline(const FeaturePlan& plan, const Dataset& dataset, const RowSet& training_rows,
                           const RowSet& rows);

/// Another column taken as the prediction of a numeric target (arrival delay = departure delay); rows where
/// it is null are left out. Throws UsageError for columns that aren't numbers.
Metrics evaluate_column_baseline(const Dataset& dataset, const RowSet& rows, const std::string& target,
                                 const std::string& column);

}  // namespace troika

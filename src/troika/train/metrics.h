// How good predictions are, in the target's own unit. Sums that add up over pieces, and what is made of them.
// Weights of samples and classes enter the loss only: a metric counts every sample once. No torch.
// Threading: values and pure functions; thread-safe as such.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troika/train/encoder.h"

namespace troika {

using Figures = std::vector<std::pair<std::string, double>>;

/// The errors of one step ahead of windows.
struct StepErrors {
  int64_t step = 0;  // from 1
  Figures values;    // rmse and mae, prefixed as in Metrics
};

/// Named figures in a fixed order. Numbers: rmse, mae, r2, each prefixed "<column>." if there are several
/// targets, over all steps ahead. Classes: accuracy, log_loss, f1, auc, as far as they are known. Tokens:
/// accuracy, log_loss, bits_per_byte. One that isn't defined (r2 of a constant, auc of one class) is NaN.
struct Metrics {
  int64_t samples = 0;  // of tokens: tokens
  Figures values;
  std::vector<StepErrors> per_horizon;  // windows of several steps ahead only
  int64_t left_out = 0;                 // samples that had no prediction (baselines)
  std::string note;                     // which figure is missing, and why
  /// The figure of that name; TROIKA_ASSERTs that it is there.
  double operator[](std::string_view name) const;
};

/// The figure of that name if there is one.
std::optional<double> find_figure(const Figures& figures, std::string_view name);

/// {"samples": ..., "rmse": ..., "per_horizon": [{"step": 1, "rmse": ...}]}; figures that aren't finite are
/// null.
nlohmann::ordered_json to_json(const Metrics& metrics);

/// "rmse 17.9  mae 11.0  r2 0.83"; a figure that isn't defined is left out.
std::string to_string(const Metrics& metrics);

/// What has to be added up, always in the same order of pieces so that the result has the same bits: for each
/// number that is predicted (errors squared and absolute, y and its square), or for classes (log loss, and of
/// each class how often it was right, predicted and true). Fixed size per plan.
class MetricSums {
 public:
  explicit MetricSums(const FeaturePlan& plan);

  /// `rows` are samples, or tokens; `outputs` are the model's [rows, width], in standardised units for
  /// numbers, logits for classes; `targets` as raw_targets gives them; `loss` is the sum of the samples'
  /// losses, and `weight` what to divide it by (absent: rows).
  void add(const FeaturePlan& plan, int64_t rows, int64_t width, const double* outputs, const double* targets,
           double loss, std::optional<double> weight = {});
  /// Predictions in the target's own unit, or class numbers. Adds no log loss.
  void add_plain(const FeaturePlan& plan, int64_t rows, const double* predictions, const double* targets);

  std::vector<double>& numbers() { return numbers_; }
  const std::vector<double>& numbers() const { return numbers_; }
  void operator+=(const MetricSums& other);

  /// The area under the ROC curve doesn't add up: whoever has seen all samples sets it at the end (auc.h), or
  /// says why not.
  void set_auc(double auc) { auc_ = auc; }
  void leave_out_auc(std::string why) { without_auc_ = std::move(why); }

  int64_t samples() const;
  double mean_loss() const;
  /// How many classes are true for some sample.
  int64_t classes_seen(const FeaturePlan& plan) const;
  /// `with_log_loss`: false if the sums come from add_plain.
  Metrics metrics(const FeaturePlan& plan, bool with_log_loss = true) const;

 private:
  void add_figures(const FeaturePlan& plan, bool with_log_loss, Metrics& metrics) const;

  std::vector<double> numbers_;  // samples, loss, its weight, then the rest
  std::optional<double> auc_;
  std::string without_auc_;
};

/// Another column taken as the prediction of a numeric target (arrival delay = departure delay); rows where
/// it is null are left out. Throws UsageError for columns that aren't numbers.
Metrics evaluate_column_baseline(const Dataset& dataset, const RowSet& rows, const std::string& target,
                                 const std::string& column);

}  // namespace troika

#include "troika/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "troika/base/error.h"
#include "troika/data/split_values.h"

namespace troika {
namespace {

constexpr size_t kSamples = 0, kLoss = 1, kWeight = 2, kFirst = 3;
constexpr size_t kPerNumber = 4;  // of each output: Error sums, see ErrorSums
constexpr size_t kLogLoss = kFirst, kClasses = kFirst + 1;
constexpr size_t kPerClass = 3;  // how often right, predicted, true
constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

/// Of one output, or of several added up.
struct ErrorSums {
  double squares = 0, absolute = 0;      // of the errors
  double values = 0, value_squares = 0;  // of y - shift

  void operator+=(const ErrorSums& other) {
    squares += other.squares;
    absolute += other.absolute;
    values += other.values;
    value_squares += other.value_squares;
  }
};

ErrorSums error_sums(const double* numbers) { return {numbers[0], numbers[1], numbers[2], numbers[3]}; }

size_t count_of(const FeaturePlan& plan) {
  return plan.kind == TargetKind::number ? kFirst + kPerNumber * static_cast<size_t>(plan.target_width())
                                         : kClasses + kPerClass * plan.targets[0].classes.size();
}

std::string prefix_of(const FeaturePlan& plan, size_t target) {
  return plan.targets.size() == 1 ? "" : plan.targets[target].column + ".";
}

double log_sum_exp(const double* values, int64_t count) {
  const double most = *std::max_element(values, values + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(values[i] - most);
  return most + std::log(sum);
}

/// log(1 + exp(x)) without overflow.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

std::optional<double> find_figure(const Figures& figures, std::string_view name) {
  const auto found = std::ranges::find_if(figures, [name](const auto& entry) { return entry.first == name; });
  if (found == figures.end()) return std::nullopt;
  return found->second;
}

double Metrics::operator[](std::string_view name) const {
  const std::optional<double> found = find_figure(values, name);
  TROIKA_ASSERT(found.has_value(), "no metric " + std::string(name));
  return *found;
}

nlohmann::ordered_json to_json(const Metrics& metrics) {
  nlohmann::ordered_json json{{"samples", metrics.samples}};
  for (const auto& [name, value] : metrics.values) json[name] = value;  // nlohmann writes NaN as null
  for (const StepErrors& errors : metrics.per_horizon) {
    nlohmann::ordered_json each{{"step", errors.step}};
    for (const auto& [name, value] : errors.values) each[name] = value;
    json["per_horizon"].push_back(std::move(each));
  }
  if (metrics.left_out > 0) json["left_out"] = metrics.left_out;
  if (!metrics.note.empty()) json["note"] = metrics.note;
  return json;
}

std::string to_string(const Metrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics.values) {
    if (!std::isnan(value)) text += fmt::format("{}{} {:.4g}", text.empty() ? "" : "  ", name, value);
  }
  return text;
}

MetricSums::MetricSums(const FeaturePlan& plan) : numbers_(count_of(plan)) {}

void MetricSums::add(const FeaturePlan& plan, int64_t rows, int64_t width, const double* outputs,
                     const double* targets, double loss, std::optional<double> weight) {
  numbers_[kLoss] += loss;
  numbers_[kWeight] += weight.value_or(static_cast<double>(rows));
  const int64_t numbers = plan.kind == TargetKind::number ? plan.target_width() : 1;
  std::vector<double> predictions(static_cast<size_t>(rows * numbers));
  double log_loss = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const double* const out = outputs + row * width;
    if (plan.kind == TargetKind::number) {
      for (int64_t i = 0; i < width; ++i) {
        const TargetColumn& target = plan.targets[static_cast<size_t>(i) % plan.targets.size()];
        predictions[static_cast<size_t>(row * width + i)] = out[i] * target.deviation + target.mean;
      }
    } else if (width == 1) {  // one logit
      predictions[static_cast<size_t>(row)] = out[0] > 0 ? 1 : 0;
      log_loss += softplus(targets[row] > 0.5 ? -out[0] : out[0]);
    } else {
      predictions[static_cast<size_t>(row)] = static_cast<double>(std::max_element(out, out + width) - out);
      log_loss += log_sum_exp(out, width) - out[static_cast<int64_t>(targets[row])];
    }
  }
  if (plan.kind != TargetKind::number) numbers_[kLogLoss] += log_loss;
  add_plain(plan, rows, predictions.data(), targets);
}

void MetricSums::add_plain(const FeaturePlan& plan, int64_t rows, const double* predictions,
                           const double* targets) {
  numbers_[kSamples] += static_cast<double>(rows);
  if (plan.kind != TargetKind::number) {
    for (int64_t row = 0; row < rows; ++row) {
      const auto predicted = static_cast<size_t>(predictions[row]), truth = static_cast<size_t>(targets[row]);
      if (predicted == truth) ++numbers_[kClasses + kPerClass * truth];
      ++numbers_[kClasses + kPerClass * predicted + 1];
      ++numbers_[kClasses + kPerClass * truth + 2];
    }
    return;
  }
  const int64_t width = plan.target_width();
  for (int64_t i = 0; i < width; ++i) {
    double* const sums = numbers_.data() + kFirst + kPerNumber * static_cast<size_t>(i);
    const double shift = plan.targets[static_cast<size_t>(i) % plan.targets.size()].mean;
    for (int64_t row = 0; row < rows; ++row) {
      const double y = targets[row * width + i];
      const double error = predictions[row * width + i] - y;
      sums[0] += error * error;
      sums[1] += std::abs(error);
      sums[2] += y - shift;
      sums[3] += (y - shift) * (y - shift);
    }
  }
}

void MetricSums::operator+=(const MetricSums& other) {
  for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] += other.numbers_[i];
}

int64_t MetricSums::samples() const { return static_cast<int64_t>(numbers_[kSamples]); }

double MetricSums::mean_loss() const { return numbers_[kLoss] / numbers_[kWeight]; }

int64_t MetricSums::classes_seen(const FeaturePlan& plan) const {
  int64_t seen = 0;
  for (size_t c = 0; c < plan.targets[0].classes.size(); ++c)
    seen += numbers_[kClasses + kPerClass * c + 2] > 0 ? 1 : 0;
  return seen;
}

Metrics MetricSums::metrics(const FeaturePlan& plan, bool with_log_loss) const {
  Metrics metrics;
  metrics.samples = samples();
  if (plan.kind != TargetKind::number) {
    add_figures(plan, with_log_loss, metrics);
    return metrics;
  }
  const double n = numbers_[kSamples];
  const size_t targets = plan.targets.size();
  const auto steps = static_cast<size_t>(plan.windows.steps_ahead());
  metrics.per_horizon.resize(steps > 1 ? steps : 0);
  for (size_t t = 0; t < targets; ++t) {
    const std::string prefix = prefix_of(plan, t);
    ErrorSums all;
    for (size_t step = 0; step < steps; ++step) {
      const ErrorSums sums = error_sums(numbers_.data() + kFirst + kPerNumber * (step * targets + t));
      all += sums;
      if (steps == 1) continue;
      StepErrors& errors = metrics.per_horizon[step];
      errors.step = static_cast<int64_t>(step) + 1;
      errors.values.emplace_back(prefix + "rmse", std::sqrt(sums.squares / n));
      errors.values.emplace_back(prefix + "mae", sums.absolute / n);
    }
    const double count = n * static_cast<double>(steps);
    const double spread = all.value_squares - all.values * all.values / count;
    metrics.values.emplace_back(prefix + "rmse", std::sqrt(all.squares / count));
    metrics.values.emplace_back(prefix + "mae", all.absolute / count);
    // Of a constant only rounding is left of the spread.
    const bool varies = spread > 1e-12 * all.value_squares;
    metrics.values.emplace_back(prefix + "r2", varies ? 1 - all.squares / spread : kUndefined);
  }
  return metrics;
}

void MetricSums::add_figures(const FeaturePlan& plan, bool with_log_loss, Metrics& metrics) const {
  const double n = numbers_[kSamples];
  const size_t classes = plan.targets[0].classes.size();
  double right = 0, f1_sum = 0, occurring = 0;
  double f1_second = kUndefined;
  for (size_t c = 0; c < classes; ++c) {
    const double* const counts = numbers_.data() + kClasses + kPerClass * c;
    right += counts[0];
    const double both = counts[1] + counts[2];  // 2 right + wrongly predicted + missed
    const double f1 = both > 0 ? 2 * counts[0] / both : kUndefined;
    if (counts[2] > 0) {
      f1_sum += f1;
      ++occurring;
    }
    if (c == 1) f1_second = f1;
  }
  metrics.values.emplace_back("accuracy", right / n);
  if (with_log_loss) metrics.values.emplace_back("log_loss", numbers_[kLogLoss] / n);
  if (plan.kind == TargetKind::tokens) {
    if (with_log_loss) {
      metrics.values.emplace_back("bits_per_byte", numbers_[kLogLoss] / n / std::numbers::ln2);
    }
    return;
  }
  metrics.values.emplace_back("f1", classes == 2 ? f1_second : f1_sum / occurring);
  if (auc_ || !without_auc_.empty()) metrics.values.emplace_back("auc", auc_.value_or(kUndefined));
  metrics.note = without_auc_;
}

Metrics evaluate_column_baseline(const Dataset& dataset, const RowSet& rows, const std::string& target,
                                 const std::string& column) {
  const auto read = [&](const Column& from, const RowBuffer& buffer, int64_t row) {
    return number_at(dataset, buffer, row, from.storage, from.index);
  };
  FeaturePlan plan;
  for (const std::string& name : {target, column}) {
    const ColumnType type = dataset.column(name).type;
    if (type != ColumnType::number && type != ColumnType::integer) {
      fail_usage("column \"{}\" is of type {}; only numbers can be compared as predictions", name,
                 name_of(type));
    }
  }
  const Column& answer = dataset.column(target);
  const Column& guess = dataset.column(column);
  plan.targets.push_back({target, answer.storage, answer.index, answer.mean, 1, {}});
  MetricSums sums(plan);
  scan_rows(dataset, rows, [&](const RowBuffer& buffer) {
    for (int64_t row = 0; row < buffer.rows; ++row) {
      const double y = read(answer, buffer, row), x = read(guess, buffer, row);
      if (!std::isnan(x) && !std::isnan(y)) sums.add_plain(plan, 1, &x, &y);
    }
  });
  if (sums.samples() == 0) fail("no row has both \"{}\" and \"{}\"", target, column);
  return sums.metrics(plan);
}

}  // namespace troika

#include "troika/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr size_t kSamples = 0, kLoss = 1, kFirst = 2;
constexpr size_t kPerNumber = 4;   // squared errors, absolute errors, y - shift, its square
constexpr size_t kPerClasses = 2;  // right ones, log loss

double log_sum_exp(const double* values, int64_t count) {
  const double most = *std::max_element(values, values + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(values[i] - most);
  return most + std::log(sum);
}

/// log(1 + exp(x)) without overflow.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

double Metrics::operator[](std::string_view name) const {
  const auto found = std::ranges::find_if(values, [name](const auto& entry) { return entry.first == name; });
  TROIKA_ASSERT(found != values.end(), "no metric " + std::string(name));
  return found->second;
}

nlohmann::ordered_json to_json(const Metrics& metrics) {
  nlohmann::ordered_json json{{"samples", metrics.samples}};
  for (const auto& [name, value] : metrics.values) json[name] = value;  // nlohmann writes NaN as null
  return json;
}

std::string to_string(const Metrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics.values)
    text += fmt::format("{}{} {:.4g}", text.empty() ? "" : "  ", name, value);
  return text;
}

MetricSums::MetricSums(const FeaturePlan& plan)
    : numbers_(kFirst + (plan.kind == TargetKind::number ? kPerNumber * plan.targets.size() : kPerClasses)) {}

void MetricSums::add(const FeaturePlan& plan, int64_t rows, int64_t width, const double* outputs,
                     const double* targets, double loss) {
  numbers_[kLoss] += loss;
  std::vector<double> predictions(static_cast<size_t>(rows * plan.target_width()));
  double log_loss = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const double* const out = outputs + row * width;
    if (plan.kind == TargetKind::number) {
      for (int64_t i = 0; i < width; ++i) {
        const TargetColumn& target = plan.targets[static_cast<size_t>(i)];
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
  if (plan.kind != TargetKind::number) numbers_[kFirst + 1] += log_loss;
  add_plain(plan, rows, predictions.data(), targets);
}

void MetricSums::add_plain(const FeaturePlan& plan, int64_t rows, const double* predictions,
                           const double* targets) {
  numbers_[kSamples] += static_cast<double>(rows);
  if (plan.kind != TargetKind::number) {
    for (int64_t row = 0; row < rows; ++row) numbers_[kFirst] += predictions[row] == targets[row] ? 1 : 0;
    return;
  }
  const int64_t width = plan.target_width();
  for (int64_t i = 0; i < width; ++i) {
    double* const sums = numbers_.data() + kFirst + kPerNumber * static_cast<size_t>(i);
    const double shift = plan.targets[static_cast<size_t>(i)].mean;
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

double MetricSums::mean_loss() const { return numbers_[kLoss] / numbers_[kSamples]; }

Metrics MetricSums::metrics(const FeaturePlan& plan, bool with_log_loss) const {
  const double n = numbers_[kSamples];
  Metrics metrics{samples(), {}};
  if (plan.kind != TargetKind::number) {
    metrics.values.emplace_back("accuracy", numbers_[kFirst] / n);
    if (with_log_loss) metrics.values.emplace_back("log_loss", numbers_[kFirst + 1] / n);
    return metrics;
  }
  for (size_t i = 0; i < plan.targets.size(); ++i) {
    const std::string prefix = plan.targets.size() == 1 ? "" : plan.targets[i].column + ".";
    const double* const sums = numbers_.data() + kFirst + kPerNumber * i;
    const double spread = sums[3] - sums[2] * sums[2] / n;
    metrics.values.emplace_back(prefix + "rmse", std::sqrt(sums[0] / n));
    metrics.values.emplace_back(prefix + "mae", sums[1] / n);
    metrics.values.emplace_back(prefix + "r2",
                                spread > 0 ? 1 - sums[0] / spread : std::numeric_limits<double>::quiet_NaN());
  }
  return metrics;
}

Baseline constant_baseline(const FeaturePlan& plan, const Dataset& dataset, const RowSet& training_rows,
                           const RowSet& rows) {
  const auto width = static_cast<size_t>(plan.target_width());
  std::vector<double> constant(width);
  Baseline baseline;
  if (plan.kind == TargetKind::number) {
    baseline.what = "mean of the training rows";
    for (size_t i = 0; i < width; ++i) constant[i] = plan.targets[i].mean;
  } else {
    std::vector<int64_t> counts(plan.targets[0].classes.size());
    std::vector<double> targets;
    scan_rows(dataset, training_rows, [&](const RowBuffer& buffer) {
      targets.resize(static_cast<size_t>(buffer.rows));
      raw_targets(plan, dataset, buffer, targets.data());
      for (const double target : targets) ++counts[static_cast<size_t>(target)];
    });
    const auto most = static_cast<size_t>(std::ranges::max_element(counts) - counts.begin());
    baseline.what = "most frequent class, " + plan.targets[0].classes[most];
    constant[0] = static_cast<double>(most);
  }
  MetricSums sums(plan);
  std::vector<double> targets, predictions;
  scan_rows(dataset, rows, [&](const RowBuffer& buffer) {
    targets.resize(static_cast<size_t>(buffer.rows) * width);
    raw_targets(plan, dataset, buffer, targets.data());
    predictions.resize(targets.size());
    for (size_t i = 0; i < predictions.size(); ++i) predictions[i] = constant[i % width];
    sums.add_plain(plan, buffer.rows, predictions.data(), targets.data());
  });
  baseline.metrics = sums.metrics(plan, false);
  return baseline;
}

Metrics evaluate_column_baseline(const Dataset& dataset, const RowSet& rows, const std::string& target,
                                 const std::string& column) {
  const auto read = [&](const Column& from, const RowBuffer& buffer, int64_t row) {
    if (from.storage == Storage::floats) {
      return static_cast<double>(
          buffer.floats[static_cast<size_t>(row * dataset.float_columns + from.index)]);
    }
    const int64_t value = buffer.ints[static_cast<size_t>(row * dataset.int_columns + from.index)];
    return value == std::numeric_limits<int64_t>::min() ? std::numeric_limits<double>::quiet_NaN()
                                                        : static_cast<double>(value);
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

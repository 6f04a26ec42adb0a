#include "troika/train/sample_weights.h"

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/data/split_values.h"

namespace troika {
namespace {

double weight_at(const SampleWeights& weights, const Dataset& dataset, const RowBuffer& rows, int64_t row) {
  return number_at(dataset, rows, row, weights.storage, weights.index);
}

/// The largest weight of the samples. Read from the rows: the column's own range leaves infinities out, and
/// knows nothing of parts.
double largest_weight(const SampleWeights& weights, const Dataset& dataset, const FeaturePlan& plan,
                      const RowSet& samples) {
  const RowSet rows = answer_rows(samples, plan.windows);
  int64_t row = -1;
  double largest = 0;
  scan_rows(dataset, rows, [&](const RowBuffer& buffer) {
    for (int64_t i = 0; i < buffer.rows; ++i) {
      for (++row; !rows.contains(row);) ++row;
      const double weight = weight_at(weights, dataset, buffer, i);
      if (weight >= 0 && std::isfinite(weight)) {
        largest = std::max(largest, weight);
        continue;
      }
      fail(
          "data.weight \"{}\" is {} in row {} of {}, which is a sample: a weight is a finite number of 0 or "
          "more; leave such rows out when packing, or give them 0",
          weights.column, std::isnan(weight) ? "null" : fmt::format("{}", weight), with_commas(row + 1),
          dataset.folder.string());
    }
  });
  return largest;
}

void plan_column(SampleWeights& weights, const Dataset& dataset, const std::string& name,
                 const FeaturePlan& plan, const Split& split) {
  const Column& column = dataset.column(name);
  if (column.type != ColumnType::number && column.type != ColumnType::integer &&
      column.type != ColumnType::boolean) {
    fail_usage("data.weight \"{}\" is of type {}; a weight is a number", name, name_of(column.type));
  }
  weights.column = name;
  weights.storage = column.storage;
  weights.index = column.index;
  const double largest = largest_weight(weights, dataset, plan, split.train);
  for (const RowSet* samples : {&split.validation, &split.test}) {
    largest_weight(weights, dataset, plan, *samples);
  }
  if (largest == 0) {
    fail(
        "data.weight \"{}\" is 0 in all {} training samples: nothing would be learned; weigh some of them, "
        "or "
        "split otherwise",
        name, with_commas(split.train.count()));
  }
}

std::vector<double> balanced(const Dataset& dataset, const FeaturePlan& plan, const RowSet& train) {
  const TargetColumn& target = plan.targets[0];
  FeaturePlan single = plan;  // the rows that hold the answers are samples of their own here
  single.windows = {};
  std::vector<int64_t> counts(target.classes.size()), classes;
  int64_t samples = 0;
  scan_rows(dataset, answer_rows(train, plan.windows), [&](const RowBuffer& buffer) {
    classes.resize(static_cast<size_t>(buffer.rows));
    encode_classes(single, dataset, buffer, classes.data());
    for (const int64_t each : classes) ++counts[static_cast<size_t>(each)];
    samples += buffer.rows;
  });
  int64_t seen = 0;
  for (const int64_t count : counts) seen += count > 0 ? 1 : 0;
  std::vector<double> factors;
  for (const int64_t count : counts) {
    factors.push_back(count > 0 ? static_cast<double>(samples) / static_cast<double>(seen * count) : 1);
  }
  return factors;
}

}  // namespace

RowSet answer_rows(const RowSet& samples, const WindowOptions& windows) {
  const int64_t ahead = windows.first_step_ahead();
  if (ahead == 0) return samples;
  RowSet out(samples.universe());
  for (int64_t row = 0; row + ahead < samples.universe(); ++row) {
    if (samples.contains(row)) out.set(row + ahead, true);
  }
  return out;
}

SampleWeights plan_weights(const Dataset& dataset, const Recipe& recipe, const FeaturePlan& plan,
                           const Split& split) {
  SampleWeights weights;
  if (!recipe.data.weight.empty()) plan_column(weights, dataset, recipe.data.weight, plan, split);
  if (recipe.train.class_weights.empty()) return weights;
  if (plan.kind == TargetKind::number) {
    fail_usage("train.class_weights = \"{}\" is for classes, but data.target \"{}\" is of type {}",
               recipe.train.class_weights, plan.targets[0].column,
               name_of(dataset.column(plan.targets[0].column).type));
  }
  weights.of_class = balanced(dataset, plan, split.train);
  return weights;
}

void encode_weights(const SampleWeights& weights, const FeaturePlan& plan, const Dataset& dataset,
                    const RowBuffer& rows, double* out) {
  const int64_t samples = samples_in(plan, rows);
  std::vector<int64_t> classes;
  if (!weights.of_class.empty()) {
    classes.resize(static_cast<size_t>(samples));
    encode_classes(plan, dataset, rows, classes.data());
  }
  for (int64_t i = 0; i < samples; ++i) {
    double weight = 1;
    if (!weights.column.empty()) {
      weight = weight_at(weights, dataset, rows, i * plan.windows.span() + plan.windows.first_step_ahead());
    }
    if (!classes.empty()) weight *= weights.of_class[static_cast<size_t>(classes[static_cast<size_t>(i)])];
    out[i] = weight;
  }
}

}  // namespace troika

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/data/text_data.h"
#include "troika/train/encoder.h"

namespace troika {
namespace {

/// `trend`: whether a timestamp's own value is an input, beside its place in the day and the year. Masks are
/// put aside, so that columns side by side stay so.
void add_feature(const Column& column, bool trend, FeaturePlan& plan, std::vector<FloatInput>& masks) {
  const auto input = [&](Encoding encoding) {
    return FloatInput{column.name, encoding, column.storage, column.index,
                      column.type == ColumnType::timestamp};
  };
  const auto add = [&](Encoding encoding) { plan.floats.push_back(input(encoding)); };
  switch (column.type) {
    case ColumnType::number:
    case ColumnType::integer:
      add(Encoding::standardised);
      break;
    case ColumnType::boolean:
      add(Encoding::boolean);
      break;
    case ColumnType::timestamp:
      if (trend) add(Encoding::standardised);
      for (const Encoding encoding :
           {Encoding::sin_day, Encoding::cos_day, Encoding::sin_year, Encoding::cos_year}) {
        add(encoding);
      }
      break;
    case ColumnType::category:
      // Null is a category of its own, so it needs no mask.
      plan.categories.push_back(
          {column.name, column.index, static_cast<int64_t>(column.categories.size()) + 1, column.categories});
      return;
  }
  if (column.nulls > 0) masks.push_back(input(Encoding::mask));
}

void add_target(const Dataset& dataset, const Column& column, const DataRecipe& recipe, FeaturePlan& plan) {
  TargetColumn target{column.name, column.storage, column.index, 0, 1, {}};
  const bool alone = recipe.targets.size() == 1;
  switch (column.type) {
    case ColumnType::number:
    case ColumnType::integer:
      break;
    case ColumnType::boolean:
      target.classes = {"false", "true"};
      break;
    case ColumnType::category:
      target.classes = column.categories;
      if (target.classes.size() < 2) {
        fail_usage("data.target \"{}\" has one category only: there is nothing to predict", column.name);
      }
      break;
    case ColumnType::timestamp:
      fail_usage("data.target \"{}\" is a timestamp; a target is a number, a boolean or a category",
                 column.name);
  }
  if (!target.classes.empty()) {
    if (!alone) {
      fail_usage(
          "data.target names several columns, and \"{}\" is of type {}; several targets must all be numbers",
          column.name, name_of(column.type));
    }
    if (plan.windows.steps_ahead() > 1) {
      fail_usage(
          "data.horizon = {}, but data.target \"{}\" is of type {}: classes are predicted one row ahead at "
          "the "
          "most; use horizon = 1",
          plan.windows.horizon, column.name, name_of(column.type));
    }
    plan.kind = target.classes.size() == 2 ? TargetKind::binary : TargetKind::classes;
  }
  if (is_text(dataset) && column.name == kByteColumn) plan.kind = TargetKind::tokens;
  plan.targets.push_back(std::move(target));
}

/// Sums of (x - shift) and its square; the shift keeps big means from eating small deviations.
struct Moments {
  Storage storage = Storage::floats;
  int index = 0;
  double shift = 0, unit = 1;
  double* mean = nullptr;
  double* deviation = nullptr;
  double sum = 0, squares = 0;
  int64_t count = 0, infinite = 0;  // finite values and others

  void add(double value) {
    if (!std::isfinite(value)) {
      ++infinite;
      return;
    }
    const double x = value * unit - shift;
    sum += x;
    squares += x * x;
    ++count;
  }
  void finish() const {
    if (count == 0) return;
    const double n = static_cast<double>(count);
    *mean = shift + sum / n;
    const double variance = std::max(0.0, squares / n - (sum / n) * (sum / n));
    // A constant column carries nothing: it becomes 0 rather than noise divided by nothing.
    const double smallest = 1e-12 * std::max(1.0, std::abs(*mean));
    *deviation = std::sqrt(variance) > smallest ? std::sqrt(variance) : 1;
  }
};

void measure(const Dataset& dataset, const RowSet& rows, FeaturePlan& plan) {
  std::vector<Moments> moments;
  std::vector<std::string> names;  // of their columns
  const auto want = [&](const std::string& name, double* mean, double* deviation) {
    const Column& column = dataset.column(name);
    const bool timestamp = column.type == ColumnType::timestamp;
    const double unit = timestamp ? 1e-9 : 1;
    moments.push_back({column.storage, column.index, timestamp ? column.minimum * unit : column.mean, unit,
                       mean, deviation});
    names.push_back(name);
  };
  for (FloatInput& input : plan.floats) {
    if (input.encoding == Encoding::standardised) want(input.column, &input.mean, &input.deviation);
  }
  if (plan.kind == TargetKind::number) {
    for (TargetColumn& target : plan.targets) want(target.column, &target.mean, &target.deviation);
  }
  scan_rows(dataset, rows, [&](const RowBuffer& buffer) {
    for (Moments& each : moments) {
      if (each.storage == Storage::floats) {
        const float* at = buffer.floats.data() + each.index;
        for (int64_t row = 0; row < buffer.rows; ++row, at += dataset.float_columns) {
          if (!std::isnan(*at)) each.add(*at);
        }
      } else {
        const int64_t* at = buffer.ints.data() + each.index;
        for (int64_t row = 0; row < buffer.rows; ++row, at += dataset.int_columns) {
          if (*at != std::numeric_limits<int64_t>::min()) each.add(static_cast<double>(*at));
        }
      }
    }
  });
  for (size_t i = 0; i < moments.size(); ++i) {
    if (moments[i].infinite > 0) {
      fail(
          "column \"{}\" of {} is infinite in {} of the {} rows to train on, so it has no mean: leave it out "
          "of "
          "data.features, or write numbers or nothing there and pack the CSV again",
          names[i], dataset.folder.string(), with_commas(moments[i].infinite), with_commas(rows.count()));
    }
    moments[i].finish();
  }
}

/// Whether a column is an input if nobody says which are (the rule is in encoder.h).
bool is_feature_by_default(const Dataset& dataset, const Column& column, const DataRecipe& recipe) {
  if (is_text(dataset)) return column.name == kByteColumn;
  const bool windows = recipe.window > 0;
  if (column.name == recipe.weight) return false;
  if (column.name == recipe.time) return windows && column.type == ColumnType::timestamp;
  if (std::ranges::count(recipe.targets, column.name)) return windows && recipe.horizon > 0;
  if (std::ranges::count(recipe.series, column.name)) {
    return column.type == ColumnType::category && recipe.split.by != "series";
  }
  return true;
}

void add_features(const Dataset& dataset, const DataRecipe& recipe, FeaturePlan& plan) {
  // The later rows of a split by time lie outside of all times trained on: a trend would be guessed, not
  // learned.
  const bool by_time = recipe.split.by == "time" || recipe.window > 0;
  std::vector<FloatInput> masks;
  const auto add = [&](const Column& column) {
    add_feature(column, !(by_time && column.name == recipe.time), plan, masks);
  };
  for (const std::string& name : recipe.features) {
    const Column& column = dataset.column(name);
    if (column.nulls == dataset.rows) {
      fail_usage("data.features: \"{}\" is null in all {} rows; leave it out", name, dataset.rows);
    }
    add(column);
  }
  for (const Column& column : dataset.columns) {
    if (!recipe.features.empty() || !is_feature_by_default(dataset, column, recipe)) continue;
    if (column.nulls == dataset.rows) {
      plan.left_out.push_back(column.name);
    } else {
      add(column);
    }
  }
  plan.floats.insert(plan.floats.end(), masks.begin(), masks.end());
  if (plan.floats.empty() && plan.categories.empty()) {
    fail_usage("{} has no column to predict {} from", dataset.folder.string(),
               fmt::join(recipe.targets, ", "));
  }
}

}  // namespace

WindowOptions windows_of(const DataRecipe& recipe) {
  if (recipe.window == 0) return {};
  return {recipe.window, recipe.horizon, recipe.stride, recipe.series, recipe.time, recipe.max_gap};
}

FeaturePlan plan_features(const Dataset& dataset, const DataRecipe& recipe, const RowSet& training_rows) {
  FeaturePlan plan;
  plan.windows = windows_of(recipe);
  for (const std::string& name : recipe.targets) {
    const Column& column = dataset.column(name);
    if (column.nulls == dataset.rows) {
      fail_usage("data.target \"{}\" is null in all {} rows: there is nothing to learn from", name,
                 dataset.rows);
    }
    add_target(dataset, column, recipe, plan);
  }
  add_features(dataset, recipe, plan);
  measure(dataset, training_rows, plan);
  return plan;
}

}  // namespace troika

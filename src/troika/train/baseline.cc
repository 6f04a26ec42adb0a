#include "troika/train/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "troika/base/error.h"
#include "troika/data/split_values.h"
#include "troika/train/sample_weights.h"
#include "troika/train/scan_samples.h"

namespace troika {
namespace {

constexpr double kDaySeconds = 86400;
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

/// The target in a row of `rows`, in its own unit or as a class number; NaN if it is null.
double target_at(const TargetColumn& target, const Dataset& dataset, const RowBuffer& rows, int64_t row) {
  return number_at(dataset, rows, row, target.storage, target.index);
}

/// A baseline under way: exactly one of `means`, `logits` and `source_rows` isn't empty.
struct Guess {
  std::string name, what;
  std::vector<double> means;         // predicts them for every sample, [target_width]
  std::vector<double> logits;        // of the classes, for every sample
  std::vector<int64_t> source_rows;  // for each step ahead, the row of the sample whose value it takes
  MetricSums sums;
  int64_t left_out = 0;
};

/// What all guesses read.
struct Samples {
  const FeaturePlan& plan;
  const Dataset& dataset;
  const RowBuffer& rows;
  int64_t count;
  const std::vector<double>& targets;  // [count, target_width]
};

void add_means(const Samples& samples, Guess& guess) {
  std::vector<double> predictions;
  predictions.reserve(samples.targets.size());
  for (int64_t i = 0; i < samples.count; ++i)
    predictions.insert(predictions.end(), guess.means.begin(), guess.means.end());
  guess.sums.add_plain(samples.plan, samples.count, predictions.data(), samples.targets.data());
}

void add_logits(const Samples& samples, Guess& guess) {
  const auto width = static_cast<int64_t>(guess.logits.size());
  for (const double& truth : samples.targets)
    guess.sums.add(samples.plan, 1, width, guess.logits.data(), &truth, 0);
}

void add_earlier(const Samples& samples, Guess& guess) {
  const FeaturePlan& plan = samples.plan;
  const auto width = static_cast<std::ptrdiff_t>(plan.target_width());
  std::vector<double> predictions, kept;
  for (int64_t i = 0; i < samples.count; ++i) {
    for (const int64_t source : guess.source_rows) {
      for (const TargetColumn& target : plan.targets)
        predictions.push_back(
            target_at(target, samples.dataset, samples.rows, i * plan.windows.span() + source));
    }
    if (std::any_of(predictions.end() - width, predictions.end(), [](double x) { return std::isnan(x); })) {
      predictions.resize(predictions.size() - static_cast<size_t>(width));
      ++guess.left_out;
      continue;
    }
    const auto truth = samples.targets.begin() + i * width;
    kept.insert(kept.end(), truth, truth + width);
  }
  guess.sums.add_plain(plan, static_cast<int64_t>(kept.size()) / width, predictions.data(), kept.data());
}

Metrics metrics_of(const FeaturePlan& plan, Guess& guess) {
  // A constant ties all samples, so it separates no class from another.
  if (!guess.logits.empty() && plan.kind != TargetKind::tokens)
    guess.sums.set_auc(guess.sums.classes_seen(plan) > 1 ? 0.5 : kNoValue);
  Metrics metrics = guess.sums.metrics(plan, !guess.logits.empty());
  metrics.left_out = guess.left_out;
  return metrics;
}

/// Log shares of the classes among the training samples' targets.
std::vector<double> class_logits(const FeaturePlan& plan, const Dataset& dataset, const RowSet& training) {
  std::vector<double> counts(plan.targets[0].classes.size(), 1);
  const bool tokens = plan.kind == TargetKind::tokens;
  const RowSet rows =
      tokens ? covered_rows(training, plan.windows.span()) : answer_rows(training, plan.windows);
  scan_rows(dataset, rows, [&](const RowBuffer& buffer) {
    for (int64_t row = 0; row < buffer.rows; ++row) {
      const double code = target_at(plan.targets[0], dataset, buffer, row);
      TROIKA_ASSERT(!std::isnan(code), "a training sample without a target");
      ++counts[static_cast<size_t>(code)];
    }
  });
  double all = 0;
  for (const double count : counts) all += count;
  for (double& count : counts) count = std::log(count / all);
  return counts;
}

/// Rows of the window that lie whole seasons before the rows to predict.
std::vector<int64_t> rows_a_season_before(const WindowOptions& windows, int64_t season) {
  TROIKA_ASSERT(season > 0 && season <= windows.window, "a season that doesn't fit in the window");
  std::vector<int64_t> rows;
  for (int64_t ahead = 0; ahead < windows.steps_ahead(); ++ahead)
    rows.push_back(windows.window + ahead - (ahead / season + 1) * season);
  return rows;
}

std::vector<Guess> guesses_of(const FeaturePlan& plan, const Dataset& dataset, const RowSet& training,
                              std::optional<int64_t> season) {
  const WindowOptions& windows = plan.windows;
  std::vector<Guess> guesses;
  const auto add = [&](std::string name, std::string what) -> Guess& {
    return guesses.emplace_back(Guess{std::move(name), std::move(what), {}, {}, {}, MetricSums(plan)});
  };
  if (plan.kind == TargetKind::number) {
    Guess& mean = add("mean", "mean of the training rows");
    for (int64_t i = 0; i < plan.target_width(); ++i)
      mean.means.push_back(plan.targets[static_cast<size_t>(i) % plan.targets.size()].mean);
  } else {
    std::vector<double> logits = class_logits(plan, dataset, training);
    const auto most = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
    const std::string& name = plan.targets[0].classes[most];
    add("majority", plan.kind == TargetKind::tokens
                        ? fmt::format("most frequent byte of the training rows, \"{}\"", name)
                        : "most frequent class of the training rows, " + name)
        .logits = std::move(logits);
  }
  // The byte before is a poor guess of the next one.
  if (plan.kind == TargetKind::tokens) return guesses;
  // With horizon 0 the model doesn't see the target's past, so it needn't beat it.
  if (!windows.any() || windows.horizon == 0) return guesses;
  add("persistence", "last known value")
      .source_rows.assign(static_cast<size_t>(windows.steps_ahead()), windows.window - 1);
  if (season) {
    add("seasonal", fmt::format("value {} rows before", *season)).source_rows =
        rows_a_season_before(windows, *season);
  }
  return guesses;
}

}  // namespace

std::vector<Baseline> measure_baselines(const FeaturePlan& plan, const Dataset& dataset, const Split& split,
                                        std::optional<int64_t> season) {
  const int64_t span = plan.windows.span();
  const std::vector<Guess> fresh = guesses_of(plan, dataset, split.train, season);
  std::vector<Baseline> baselines;
  for (const Guess& guess : fresh) baselines.push_back({guess.name, guess.what, {}, {}});
  const auto measure = [&](const RowSet& part, std::optional<Metrics> Baseline::*metrics) {
    if (part.count() == 0) return;
    std::vector<Guess> guesses = fresh;
    std::vector<double> targets;
    scan_samples(dataset, part, span, [&](const RowBuffer& rows) {
      const Samples samples{plan, dataset, rows, rows.rows / span, targets};
      targets.resize(static_cast<size_t>(samples.count * plan.target_width()));
      raw_targets(plan, dataset, rows, targets.data());
      for (Guess& guess : guesses) {
        if (!guess.means.empty()) add_means(samples, guess);
        if (!guess.logits.empty()) add_logits(samples, guess);
        if (!guess.source_rows.empty()) add_earlier(samples, guess);
      }
    });
    for (size_t i = 0; i < guesses.size(); ++i) baselines[i].*metrics = metrics_of(plan, guesses[i]);
  };
  measure(split.validation, &Baseline::validation);
  measure(split.test, &Baseline::test);
  return baselines;
}

std::optional<int64_t> rows_of_a_day(const WindowOptions& windows, double step_seconds) {
  if (step_seconds <= 0) return std::nullopt;
  const double rows = kDaySeconds / step_seconds;
  const double whole = std::round(rows);
  // A season of one row is persistence.
  if (std::abs(rows - whole) > 1e-6 * rows || whole < 2) return std::nullopt;
  if (whole > static_cast<double>(windows.window)) return std::nullopt;
  return static_cast<int64_t>(whole);
}

std::optional<int64_t> choose_season(const DataRecipe& recipe, const WindowOptions& windows,
                                     double step_seconds) {
  if (!recipe.season) return rows_of_a_day(windows, step_seconds);
  if (windows.any() && windows.horizon == 0) {
    fail_usage(
        "data.season = {} is for the seasonal baseline, which predicts from earlier values of the target, "
        "and "
        "with data.horizon = 0 these aren't known; leave it out",
        *recipe.season);
  }
  if (*recipe.season > windows.window) {
    fail_usage(
        "data.season = {} doesn't fit in data.window = {}: the seasonal baseline takes a value of the "
        "window; "
        "make the window longer, or leave the season out",
        *recipe.season, windows.window);
  }
  return recipe.season;
}

double seconds_between_rows(const Dataset& dataset, const WindowOptions& windows, const Split& split) {
  if (!windows.any() || windows.time.empty()) return 0;
  if (dataset.column(windows.time).type != ColumnType::timestamp) return 0;
  return split.median_step;
}

double error_of(const Metrics& metrics) {
  if (const std::optional<double> bits = find_figure(metrics.values, "bits_per_byte")) return *bits;
  if (const std::optional<double> accuracy = find_figure(metrics.values, "accuracy")) return 1 - *accuracy;
  double logs = 0;
  int64_t count = 0;
  for (const auto& [name, value] : metrics.values) {
    if (name != "rmse" && !name.ends_with(".rmse")) continue;
    logs += std::log(value);
    ++count;
  }
  return count == 0 ? kNoValue : std::exp(logs / static_cast<double>(count));
}

const Baseline* strongest(const std::vector<Baseline>& baselines) {
  const Baseline* best = nullptr;
  double least = 0;
  for (const Baseline& baseline : baselines) {
    const std::optional<Metrics>& metrics = baseline.test ? baseline.test : baseline.validation;
    const double error = metrics ? error_of(*metrics) : kNoValue;
    if (std::isnan(error) || (best != nullptr && error >= least)) continue;
    best = &baseline;
    least = error;
  }
  return best;
}

std::string to_beat(const std::vector<Baseline>& baselines) {
  std::string text;
  const char* part = "";
  for (const Baseline& baseline : baselines) {
    const std::optional<Metrics>& metrics = baseline.validation ? baseline.validation : baseline.test;
    if (!metrics) continue;
    part = baseline.validation ? "validation" : "test";
    text += (text.empty() ? "" : "; ") + baseline.name;
    for (const auto& [name, value] : metrics->values) {
      if (name == "rmse" || name.ends_with(".rmse") || name == "accuracy" || name == "bits_per_byte")
        text += fmt::format(" {} {:.4g}", name, value);
    }
  }
  return text.empty() ? "" : fmt::format("to beat on the {} rows: {}", part, text);
}

}  // namespace troika

#include "troika/train/report_metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "troika/base/text.h"

namespace troika {
namespace {

constexpr size_t kMostTargets = 8;  // in the table; all are in the JSON
constexpr int kNameWidth = 24;

struct Row {
  std::string name;
  const Metrics* metrics;
};

/// One part of the data: the model first, then the baselines.
struct Part {
  std::string name;
  std::vector<Row> rows;
};

std::vector<Part> parts_of(const MetricsReport& report) {
  std::vector<Part> parts;
  const auto add = [&](const char* name, const std::optional<Metrics>& model,
                       std::optional<Metrics> Baseline::*of_baseline) {
    if (!model) return;
    Part part{name, {{"model", &*model}}};
    for (const Baseline& baseline : report.baselines) {
      if (baseline.*of_baseline) part.rows.push_back({baseline.name, &*(baseline.*of_baseline)});
    }
    parts.push_back(std::move(part));
  };
  add("validation", report.validation, &Baseline::validation);
  add("test", report.test, &Baseline::test);
  return parts;
}

/// "humidity." for each target, or "" if there is one.
std::vector<std::string> prefixes_of(const Metrics& metrics) {
  std::vector<std::string> prefixes;
  for (const auto& [name, value] : metrics.values) {
    if (name.ends_with(".rmse")) prefixes.push_back(name.substr(0, name.size() - 4));
  }
  if (prefixes.empty()) prefixes.emplace_back();
  return prefixes;
}

std::string figure(std::optional<double> value) {
  return value && !std::isnan(*value) ? fmt::format("{:.4g}", *value) : "-";
}

std::string table(const std::vector<Part>& parts, const std::vector<std::string>& prefixes) {
  const Metrics& first = *parts.front().rows.front().metrics;
  std::vector<std::string> columns;
  for (const auto& [name, value] : first.values) {
    if (name.starts_with(prefixes.front())) columns.push_back(name.substr(prefixes.front().size()));
  }
  std::string text = fmt::format("  {:<{}}", "", kNameWidth);
  const auto width_of = [](const std::string& column) { return std::max<size_t>(11, column.size() + 2); };
  for (const std::string& column : columns) text += fmt::format("{:>{}}", column, width_of(column));
  text += fmt::format("{:>12}\n", std::ranges::count(columns, "bits_per_byte") > 0 ? "bytes" : "samples");
  for (const Part& part : parts) {
    for (size_t t = 0; t < std::min(prefixes.size(), kMostTargets); ++t) {
      const std::string target =
          prefixes[t].empty() ? "" : ", " + prefixes[t].substr(0, prefixes[t].size() - 1);
      text += fmt::format("  {}{}\n", part.name, target);
      for (const Row& row : part.rows) {
        text += fmt::format("    {:<{}}", row.name, kNameWidth - 2);
        for (const std::string& column : columns)
          text += fmt::format("{:>{}}", figure(find_figure(row.metrics->values, prefixes[t] + column)),
                              width_of(column));
        text += fmt::format("{:>12}", with_commas(row.metrics->samples));
        if (row.metrics->left_out > 0)
          text += fmt::format("  ({} left out: null there)", with_commas(row.metrics->left_out));
        text += "\n";
      }
    }
  }
  if (prefixes.size() > kMostTargets)
    text += fmt::format("  and {} more targets, all in --json\n", prefixes.size() - kMostTargets);
  if (!first.note.empty()) text += fmt::format("  {}\n", first.note);
  return text;
}

/// A few steps from the first to the last: quarters of the way.
std::vector<size_t> some_steps(size_t steps) {
  std::vector<size_t> some;
  for (const size_t step : {size_t{1}, steps / 4, steps / 2, steps - steps / 4, steps}) {
    if (step >= 1 && (some.empty() || step - 1 > some.back())) some.push_back(step - 1);
  }
  return some;
}

std::string steps_ahead(const Part& part, const std::string& prefix, double seconds_between_rows) {
  const std::vector<size_t> steps = some_steps(part.rows.front().metrics->per_horizon.size());
  const std::string target = prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1) + ", ";
  std::string text = fmt::format("  {:<{}}", fmt::format("{}{}, ahead", target, part.name), kNameWidth);
  for (const size_t step : steps)
    text += fmt::format("{:>11}", step_label(static_cast<int64_t>(step) + 1, seconds_between_rows));
  text += "\n";
  const auto line = [&](const Row& row, const char* error) {
    text += fmt::format("    {:<{}}", fmt::format("{}, {}", row.name, error), kNameWidth - 2);
    for (const size_t step : steps)
      text +=
          fmt::format("{:>11}", figure(find_figure(row.metrics->per_horizon[step].values, prefix + error)));
    text += "\n";
  };
  line(part.rows.front(), "mae");
  for (const Row& row : part.rows) line(row, "rmse");
  return text;
}

/// A sentence for each baseline that does better.
std::string verdicts(const Part& part, const std::vector<std::string>& prefixes) {
  std::string text;
  const Metrics& model = *part.rows.front().metrics;
  for (size_t i = 1; i < part.rows.size(); ++i) {
    for (const std::string& prefix : prefixes) {
      const bool tokens = find_figure(model.values, "bits_per_byte").has_value();
      const bool classes = !tokens && find_figure(model.values, "accuracy").has_value();
      const std::string name = tokens ? "bits_per_byte" : classes ? "accuracy" : prefix + "rmse";
      const std::optional<double> mine = find_figure(model.values, name);
      const std::optional<double> theirs = find_figure(part.rows[i].metrics->values, name);
      if (!mine || !theirs || std::isnan(*theirs)) continue;
      // A model whose error isn't a number is worse than any.
      const bool no_worse = classes ? *mine >= *theirs : *mine <= *theirs;
      if (no_worse) continue;
      text += fmt::format(
          "  the model is WORSE than the baseline \"{}\" on the {} rows: {} {:.4g} against {:.4g}\n",
          part.rows[i].name, part.name, name, *mine, *theirs);
    }
  }
  return text;
}

}  // namespace

std::string step_label(int64_t step, double seconds_between_rows) {
  if (seconds_between_rows <= 0) return fmt::format("step {}", step);
  const double seconds = static_cast<double>(step) * seconds_between_rows;
  const auto whole = [seconds](double unit) {
    return std::abs(std::remainder(seconds, unit)) < 1e-6 * seconds;
  };
  // Hours up to two days, as forecasts are spoken of.
  if (seconds > 172800 && whole(86400)) return fmt::format("+{:.0f} d", seconds / 86400);
  if (whole(3600)) return fmt::format("+{:.0f} h", seconds / 3600);
  if (whole(60)) return fmt::format("+{:.0f} min", seconds / 60);
  return fmt::format("+{:.4g} s", seconds);
}

std::string metrics_text(const MetricsReport& report) {
  const std::vector<Part> parts = parts_of(report);
  if (parts.empty()) return "";
  const std::vector<std::string> prefixes = prefixes_of(*parts.front().rows.front().metrics);
  std::string text = table(parts, prefixes);
  const Part& last = parts.back();
  if (!last.rows.front().metrics->per_horizon.empty()) {
    for (size_t t = 0; t < std::min(prefixes.size(), kMostTargets); ++t)
      text += steps_ahead(last, prefixes[t], report.seconds_between_rows);
  }
  for (const Part& part : parts) text += verdicts(part, prefixes);
  std::vector<std::string> meanings;
  for (const Baseline& baseline : report.baselines)
    meanings.push_back(fmt::format("{} = {}", baseline.name, baseline.what));
  if (!meanings.empty()) text += fmt::format("  baselines: {}\n", fmt::join(meanings, "; "));
  return text;
}

}  // namespace troika

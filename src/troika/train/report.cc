#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "troika/base/text.h"
#include "troika/train/report_metrics.h"
#include "troika/train/trainer.h"

namespace troika {

namespace {

std::string memory_text(const std::vector<StageReport>& stages) {
  std::string text;
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageReport& stage = stages[s];
    if (!stage.peak_bytes) continue;
    text += fmt::format("{}: {} of tensors at most",
                        stages.size() == 1 ? "each rank's training" : fmt::format("stage {}", s),
                        human_bytes(static_cast<double>(*stage.peak_bytes)));
    if (stage.predicted_peak_bytes) {
      text += fmt::format(", {} predicted", human_bytes(static_cast<double>(*stage.predicted_peak_bytes)));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string report_json(const TrainReport& report) {
  using Json = nlohmann::ordered_json;
  const auto metrics = [](const std::optional<Metrics>& value) { return value ? to_json(*value) : Json(); };
  Json baseline, baselines = Json::array();
  if (const Baseline* best = strongest(report.baselines)) {
    baseline = metrics(best->test ? best->test : best->validation);
    baseline["name"] = best->name;
    baseline["predicts"] = best->what;
  }
  for (const Baseline& each : report.baselines) {
    baselines.push_back({{"name", each.name},
                         {"predicts", each.what},
                         {"validation", metrics(each.validation)},
                         {"test", metrics(each.test)}});
  }
  Json json;
  const bool in_trial = !report.finished && report.steps == 0;  // stopped before ranks were chosen
  const auto chosen = [in_trial](const Json& value) { return in_trial ? Json() : value; };
  json["train_loss"] = chosen(report.train_loss);
  json["validation_loss"] = report.validation_loss ? Json(*report.validation_loss) : Json();
  json["metrics"] = {{"validation", metrics(report.validation)},
                     {"test", metrics(report.test)},
                     {"baseline", baseline},
                     {"baselines", baselines}};
  json["samples_per_s"] = report.samples_per_s;
  json["seconds"] = report.seconds;
  json["seconds_to_first_step"] = report.seconds_to_first_step;
  json["ranks"] = chosen(report.mesh.ranks());
  json["mesh"] = chosen(
      {{"data", report.mesh.data}, {"pipeline", report.mesh.pipeline}, {"tensor", report.mesh.tensor}});
  json["schedule"] = report.schedule;
  json["micro_batches"] = report.micro_batches;
  json["threads_per_rank"] = chosen(report.threads_per_rank);
  json["auto"] = Json();
  for (const LayoutRate& rate : report.tried) {
    json["auto"].push_back({{"ranks", rate.layout.ranks},
                            {"threads_per_rank", rate.layout.threads},
                            {"samples_per_s", rate.samples_per_s}});
  }
  json["peak_rss_bytes"] = report.peak_rss_bytes;
  const auto or_null = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  json["predicted_bubble_rate"] = or_null(report.predicted_bubble_rate);
  json["measured_bubble_rate"] = or_null(report.measured_bubble_rate);
  const auto bytes_or_null = [](const std::optional<int64_t>& value) {
    return value ? Json(*value) : Json();
  };
  json["stages"] = Json::array();
  for (const StageReport& stage : report.stages) {
    json["stages"].push_back({{"layers", stage.layers},
                              {"parameters", stage.parameters},
                              {"predicted_peak_bytes", bytes_or_null(stage.predicted_peak_bytes)},
                              {"peak_bytes", bytes_or_null(stage.peak_bytes)}});
  }
  json["finished"] = report.finished;
  json["steps"] = report.steps;
  json["weights_step"] = report.weights_step;
  json["run_dir"] = report.run_dir.string();
  return json.dump(2);
}

std::string report_text(const TrainReport& report) {
  if (!report.finished && report.steps == 0) {
    return fmt::format(
        "stopped after {}, before the first step: ranks were not chosen yet\nrun: {}; go on with --resume\n",
        human_seconds(report.seconds), report.run_dir.string());
  }
  std::string text = fmt::format(
      "{} after {} steps in {}: train loss {:.4g}, {:.0f} samples/s on {} rank{} x {} thread{}, {} of "
      "memory\n",
      report.finished ? "done" : "stopped", with_commas(report.steps), human_seconds(report.seconds),
      report.train_loss, report.samples_per_s, report.mesh.ranks(), report.mesh.ranks() == 1 ? "" : "s",
      report.threads_per_rank, report.threads_per_rank == 1 ? "" : "s",
      human_bytes(static_cast<double>(report.peak_rss_bytes)));
  if (report.predicted_bubble_rate) {
    text += fmt::format(
        "pipeline {}: bubble {:.1f} % predicted{}\n", report.schedule, 100 * *report.predicted_bubble_rate,
        report.measured_bubble_rate
            ? fmt::format(", {:.1f} % measured in one {}", 100 * *report.measured_bubble_rate,
                          report.traced_steps == 1
                              ? "step"
                              : fmt::format("window of {} steps", with_commas(report.traced_steps)))
            : "");
  }
  text += memory_text(report.stages);
  text += metrics_text({report.validation, report.test, report.baselines, report.seconds_between_rows});
  text += report.finished ? fmt::format("run: {}\n", report.run_dir.string())
                          : fmt::format("run: {}; go on with --resume\n", report.run_dir.string());
  return text;
}

}  // namespace troika

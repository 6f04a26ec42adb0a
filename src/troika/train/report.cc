#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "troika/base/text.h"
#include "troika/train/trainer.h"

namespace troika {

std::string report_json(const TrainReport& report) {
  using Json = nlohmann::ordered_json;
  const auto metrics = [](const std::optional<Metrics>& value) { return value ? to_json(*value) : Json(); };
  Json baseline;
  if (report.baseline) {
    baseline = to_json(report.baseline->metrics);
    baseline["predicts"] = report.baseline->what;
  }
  Json json;
  json["train_loss"] = report.train_loss;
  json["validation_loss"] = report.validation_loss ? Json(*report.validation_loss) : Json();
  json["metrics"] = {
      {"validation", metrics(report.validation)}, {"test", metrics(report.test)}, {"baseline", baseline}};
  json["samples_per_s"] = report.samples_per_s;
  json["seconds"] = report.seconds;
  json["seconds_to_first_step"] = report.seconds_to_first_step;
  json["ranks"] = report.mesh.ranks();
  json["mesh"] = {
      {"data", report.mesh.data}, {"pipeline", report.mesh.pipeline}, {"tensor", report.mesh.tensor}};
  json["schedule"] = "none";
  json["micro_batches"] = report.micro_batches;
  json["threads_per_rank"] = report.threads_per_rank;
  json["peak_rss_bytes"] = report.peak_rss_bytes;
  json["predicted_bubble_rate"] = nullptr;
  json["measured_bubble_rate"] = nullptr;
  json["stages"] = Json::array({{{"layers", report.stage.layers},
                                 {"parameters", report.stage.parameters},
                                 {"predicted_peak_bytes", nullptr},
                                 {"peak_bytes", nullptr}}});
  json["finished"] = report.finished;
  json["steps"] = report.steps;
  json["run_dir"] = report.run_dir.string();
  return json.dump(2);
}

std::string report_text(const TrainReport& report) {
  std::string text = fmt::format(
      "{} after {} steps in {}: train loss {:.4g}, {:.0f} samples/s on {} rank{} x {} thread{}, {} of "
      "memory\n",
      report.finished ? "done" : "stopped", with_commas(report.steps), human_seconds(report.seconds),
      report.train_loss, report.samples_per_s, report.mesh.ranks(), report.mesh.ranks() == 1 ? "" : "s",
      report.threads_per_rank, report.threads_per_rank == 1 ? "" : "s",
      human_bytes(static_cast<double>(report.peak_rss_bytes)));
  const auto line = [&text](const char* what, const Metrics& metrics, const std::string& note) {
    text += fmt::format("  {:<11} {}  ({} samples{})\n", what, to_string(metrics),
                        with_commas(metrics.samples), note);
  };
  if (report.validation) line("validation", *report.validation, "");
  if (report.test) line("test", *report.test, "");
  if (report.baseline) line("baseline", report.baseline->metrics, ", " + report.baseline->what);
  text += report.finished ? fmt::format("run: {}\n", report.run_dir.string())
                          : fmt::format("run: {}; go on with --resume\n", report.run_dir.string());
  return text;
}

}  // namespace troika

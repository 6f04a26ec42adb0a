#include "troika/app/schedule_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "troika/base/text.h"

namespace troika {
namespace {

bool splits_backward(const Schedule& schedule) {
  return std::ranges::any_of(schedule.lanes, [](const Lane& lane) {
    return std::ranges::any_of(lane, [](const Action& action) { return action.op == Op::backward_weight; });
  });
}

std::string times_of(const Subject& subject) {
  const auto& stages = subject.costs.stages;
  if (stages.empty() || std::ranges::adjacent_find(stages, std::not_equal_to<>()) != stages.end()) {
    return "times differ from stage to stage";
  }
  const StageCost& cost = stages.front();
  const auto time = [&](double seconds) { return time_text(seconds, subject.measured); };
  std::string text = "forward " + time(cost.forward_s);
  if (subject.schedule.kind == Kind::train) {
    text += splits_backward(subject.schedule)
                ? fmt::format(", input {}, weight {}", time(cost.input_s), time(cost.weight_s))
                : fmt::format(", backward {}", time(cost.backward_s.value_or(cost.input_s + cost.weight_s)));
  }
  if (subject.costs.link.latency_s > 0) text += ", message " + time(subject.costs.link.latency_s);
  return text;
}

}  // namespace

std::string percent(double rate) {
  const double shown = rate * 100;
  return fmt::format("{:.1f} %", std::abs(shown) < 0.05 ? 0.0 : shown);  // never "-0.0"
}

std::string time_text(double seconds, bool measured) {
  return measured ? human_seconds(seconds) : fmt::format("{:.6g}", seconds);
}

std::string counted(int64_t number, const std::string& thing) {
  return fmt::format("{} {}{}", with_commas(number), thing,
                     number == 1            ? ""
                     : thing.ends_with("h") ? "es"
                                            : "s");
}

int chunks_of(const Schedule& schedule) {
  const std::vector<int> count = stages_per_lane(schedule);
  return count.empty() ? 0 : std::ranges::max(count);
}

std::string heading(const Subject& subject) {
  const Schedule& schedule = subject.schedule;
  std::string text = fmt::format("{}: {}", subject.name, counted(schedule.num_lanes(), "lane"));
  if (const int chunks = chunks_of(schedule); chunks > 1) text += fmt::format(" of {} stages", chunks);
  text += fmt::format(", {}", counted(schedule.num_micro_batches, "micro-batch"));
  if (schedule.num_updates > 1) text += fmt::format(", {} updates", schedule.num_updates);
  if (schedule.kind == Kind::forward) text += ", forwards only";
  return text + "; " + times_of(subject);
}

std::string summary_text(const Subject& subject, const Summary& summary) {
  const auto time = [&](double seconds) { return time_text(seconds, subject.measured); };
  const double most = most_held(summary.peaks);
  std::string lanes;
  for (size_t lane = 0; lane < summary.peaks.size(); ++lane) {
    if (summary.peaks[lane].held < most) continue;
    lanes = fmt::format("lane {}", lane);
    break;
  }
  const bool all_the_same =
      std::ranges::all_of(summary.peaks, [&](const LanePeaks& peaks) { return peaks.held == most; });
  std::string text =
      fmt::format("makespan {}, bubble {}; cost {}, bubble {}; {}; peak held {:.6g} micro-batch{} ({})\n",
                  time(summary.makespan_s), percent(summary.bubble_rate_makespan), time(summary.cost_s),
                  percent(summary.bubble_rate), counted(summary.messages, "message"), most,
                  most == 1 ? "" : "es", all_the_same ? "every lane" : lanes);
  if (summary.cost_s < summary.makespan_s * (1 - 1e-9)) {
    text += "One step alone takes the makespan; it takes the cost where the next step starts meanwhile.\n";
  }
  return text;
}

nlohmann::ordered_json summary_json(const Subject& subject, const Summary& summary) {
  const Schedule& schedule = subject.schedule;
  nlohmann::ordered_json json{{"name", subject.name},
                              {"kind", schedule.kind == Kind::train ? "train" : "forward"},
                              {"stages", schedule.num_lanes()},
                              {"chunks", chunks_of(schedule)},
                              {"micro_batches", schedule.num_micro_batches},
                              {"updates", schedule.num_updates},
                              {"makespan", summary.makespan_s},
                              {"cost", summary.cost_s},
                              {"bubble_rate", summary.bubble_rate},
                              {"bubble_rate_makespan", summary.bubble_rate_makespan},
                              {"utilization", summary.utilization},
                              {"messages", summary.messages}};
  for (const auto& [key, field] : {std::pair{"peak_activations", &LanePeaks::activations},
                                   {"peak_weight_pending", &LanePeaks::weight_pending},
                                   {"peak_held", &LanePeaks::held}}) {
    json[key] = nlohmann::ordered_json::array();
    for (const LanePeaks& peaks : summary.peaks) json[key].push_back(peaks.*field);
  }
  if (schedule.kind == Kind::train) json["weight_versions"] = versions_held(schedule);
  json["warnings"] = subject.notes;
  return json;
}

}  // namespace troika

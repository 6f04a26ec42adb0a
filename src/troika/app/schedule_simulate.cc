// troika schedule simulate: the numbers of a schedule.
#include <algorithm>

#include "troika/app/output.h"
#include "troika/app/schedule.h"
#include "troika/app/schedule_costs.h"
#include "troika/app/schedule_report.h"
#include "troika/base/error.h"
#include "troika/base/table.h"
#include "troika/base/text.h"

namespace troika {
namespace {

bool has_bytes(const CostModel& costs) {
  return std::ranges::any_of(costs.stages, [](const StageCost& cost) {
    return cost.activation_bytes + cost.weight_pending_bytes + cost.kept_input_bytes + cost.output_bytes +
               cost.weight_bytes + cost.gradient_bytes + cost.optimizer_bytes >
           0;
  });
}

// Per lane; empty if the costs say nothing about bytes.
std::vector<double> peak_bytes(const Subject& subject, const Trace& trace) {
  std::vector<double> peaks;
  if (!subject.measured || !has_bytes(subject.costs)) return peaks;
  for (const auto& levels : with_memory(subject.schedule, subject.costs, trace).memory) {
    double most = 0;
    for (const MemoryLevel& level : levels) most = std::max(most, level.bytes);
    peaks.push_back(most);
  }
  return peaks;
}

std::string lanes_table(const Summary& summary, const std::vector<double>& bytes) {
  std::vector<std::string> header{"lane", "busy", "peak activations", "peak weight pending", "peak held"};
  if (!bytes.empty()) header.emplace_back("peak memory");
  Table table(header, std::vector<bool>(header.size(), true));
  for (size_t lane = 0; lane < summary.peaks.size(); ++lane) {
    const LanePeaks& peaks = summary.peaks[lane];
    std::vector<std::string> row{
        std::to_string(lane), percent(summary.utilization[lane]), fmt::format("{:.6g}", peaks.activations),
        fmt::format("{:.6g}", peaks.weight_pending), fmt::format("{:.6g}", peaks.held)};
    if (!bytes.empty()) row.push_back(human_bytes(bytes[lane]));
    table.add(std::move(row));
  }
  return table.text();
}

void run_simulate(const ScheduleOptions& options) {
  const Subject subject = subject_of(options);
  const Trace trace = simulate(subject.schedule, subject.costs);
  const Summary summary = summarize(subject.schedule, trace);
  const std::vector<double> bytes = peak_bytes(subject, trace);
  if (options.json) {
    nlohmann::ordered_json json = summary_json(subject, summary);
    if (!bytes.empty()) json["peak_bytes"] = bytes;
    print_json(json);
    return;
  }
  print_notes(subject.notes);
  print_out(heading(subject) + "\n" + lanes_table(summary, bytes) + summary_text(subject, summary));
}

}  // namespace

void add_schedule_simulate(CLI::App& schedule) {
  auto* const command =
      schedule.add_subcommand("simulate", "The numbers: makespan, cost, bubble, messages, memory");
  const auto options = std::make_shared<ScheduleOptions>();
  add_subject(*command, *options);
  add_size_options(*command, *options);
  add_time_options(*command, *options, "one stage");
  add_step_options(*command, *options);
  add_json_option(*command, *options);
  command->footer(
      costs_help() +
      "Makespan: from the first start to the last end. Cost: the longest time from a lane's first pass to "
      "its last.\nMemory is counted in micro-batches of a whole lane.\n"
      "Example: troika schedule simulate zb-h1 --stages 8 --micro-batches 24 --forward 18.5 --input 18.1 "
      "--weight 9.3");
  command->callback([options] { run_simulate(*options); });
}

}  // namespace troika

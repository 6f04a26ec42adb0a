#include "troika/schedule/validate.h"

#include "troika/base/error.h"
#include "troika/schedule/deadlock.h"
#include "troika/schedule/order.h"
#include "troika/schedule/structure.h"

namespace troika {
namespace {

std::string name_of_depth(int depth) {
  if (depth == 0) return "blocking sends";
  return fmt::format("a buffer of {} message{} per pair of lanes", depth, depth == 1 ? "" : "s");
}

void check_run(const Schedule& schedule, const ActionGraph& graph, const LaneMessages* messages, int depth,
               FaultList& faults) {
  const LaneRun run(graph, messages, schedule.num_lanes(), depth);
  if (run.finished()) return;
  int cure = kUnlimited;
  if (messages != nullptr && depth != kUnlimited) {
    cure = smallest_depth(graph, *messages, schedule.num_lanes());
    // Lanes that wait for each other whatever the buffers are told of as such.
    if (cure == kUnlimited) return check_run(schedule, graph, messages, kUnlimited, faults);
  }
  const auto circle = run.shortest_circle();
  const auto& [lane, action, needed] = circle.front();
  std::string reason = describe(circle, graph);
  if (cure == kUnlimited) {
    reason = "the lanes wait for each other: " + reason;
  } else {
    reason =
        fmt::format("deadlock with {}: {}; {} cures it", name_of_depth(depth), reason, name_of_depth(cure));
  }
  faults.add(lane, action - graph.first_of(lane), graph.action(action), std::move(reason));
}

FaultList find_faults(const Schedule& schedule, const ValidateOptions& options) {
  // Each check expects what the ones before it have found right: after a fault the next ones would only
  // repeat it in other words.
  FaultList faults;
  check_numbers(schedule, faults);
  if (faults.any()) return faults;
  const ActionGraph graph(schedule);
  check_actions(schedule, graph, faults);
  check_complete(schedule, graph, faults);
  if (faults.any()) return faults;
  check_lane_order(schedule, graph, faults);
  if (faults.any()) return faults;
  if (schedule.stated.messages) {
    const LaneMessages messages(schedule, graph);
    check_message_order(graph, messages, faults);
    if (!faults.any()) check_run(schedule, graph, &messages, options.buffer_depth, faults);
  } else {
    check_run(schedule, graph, nullptr, kUnlimited, faults);
  }
  check_versions(schedule, faults);
  if (options.memory_limit) check_memory(schedule, *options.memory_limit, faults);
  return faults;
}

}  // namespace

Verdict validate(const Schedule& schedule, const ValidateOptions& options) {
  TROIKA_ASSERT(options.buffer_depth >= 0, "a buffer holds 0 messages or more");
  return {find_faults(schedule, options).take()};
}

int needed_buffer_depth(const Schedule& schedule) {
  if (!schedule.stated.messages) return 0;
  const ActionGraph graph(schedule);
  return smallest_depth(graph, LaneMessages(schedule, graph), schedule.num_lanes());
}

void require_valid(const Schedule& schedule, const std::string& name, const ValidateOptions& options) {
  const Verdict verdict = validate(schedule, options);
  if (verdict.valid()) return;
  const size_t others = verdict.faults.size() - 1;
  const bool more = verdict.faults.size() == static_cast<size_t>(kMostFaults);
  fail("schedule {} can't be run:\n{}{}", name, explain(schedule, verdict.faults.front()),
       others == 0
           ? std::string()
           : fmt::format("\n({}{} more fault{})", more ? "at least " : "", others, others == 1 ? "" : "s"));
}

}  // namespace troika

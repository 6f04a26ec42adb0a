#include <algorithm>
#include <utility>

#include "troika/base/error.h"
#include "troika/schedule/graph.h"
#include "troika/simulate/simulate.h"

namespace troika {
namespace {

// Bytes that come (or, below 0, go) at a time. Deltas may be added in any order, so spans may be in any.
struct Change {
  double at_s = 0;
  double bytes = 0;
};

void check(const Schedule& schedule, const ActionIndex& index, const CostModel& costs, const Trace& trace) {
  if (costs.stages.size() != static_cast<size_t>(schedule.num_stages())) {
    fail("a schedule of {} stages needs the costs of as many, got those of {}", schedule.num_stages(),
         costs.stages.size());
  }
  if (trace.ranks != schedule.num_lanes()) {
    fail("a trace of this schedule has one rank per lane, that is {}, got {}", schedule.num_lanes(),
         trace.ranks);
  }
  for (const Span& span : trace.spans) {
    if (span.rank < 0 || span.rank >= trace.ranks || !index.names_what_exists(span.action)) {
      fail("{} of rank {} in the trace isn't of this schedule", to_string(span.action), span.rank);
    }
  }
}

// Activations, and what a weight part still needs.
void add_held(const Schedule& schedule, const StageCost& cost, const Span& span,
              std::vector<Change>& changes) {
  const bool recomputed = schedule.is_recomputed(span.action.stage);
  const double kept = recomputed ? cost.kept_input_bytes : cost.activation_bytes;
  switch (span.action.op) {
    case Op::forward:
      changes.push_back({span.start_s, kept});
      if (schedule.kind == Kind::forward) changes.push_back({span.end_s, -kept});
      return;
    case Op::recompute:
      changes.push_back({span.start_s, cost.activation_bytes - kept});
      return;
    case Op::backward:
      changes.push_back({span.end_s, -cost.activation_bytes});
      return;
    case Op::backward_input:
      changes.push_back({span.end_s, cost.weight_pending_bytes - cost.activation_bytes});
      return;
    case Op::backward_weight:
      changes.push_back({span.end_s, -cost.weight_pending_bytes});
      return;
    case Op::load:
    case Op::reduce_gradients:
    case Op::optimizer_step:
    case Op::send_activation:
    case Op::receive_activation:
    case Op::send_gradient:
    case Op::receive_gradient:
      return;
  }
}

// When the versions of each stage's weights come and go. Version 0 is there from the start, version k + 1
// when update k ends.
class Versions {
 public:
  Versions(const Schedule& schedule, const ActionIndex& index)
      : updates_(static_cast<size_t>(schedule.num_updates)),
        micro_batches_(static_cast<size_t>(schedule.num_micro_batches)),
        made_(static_cast<size_t>(schedule.num_stages()) * updates_, -1),
        uses_(static_cast<size_t>(schedule.num_stages()) * (updates_ + 1)),
        version_(static_cast<size_t>(schedule.num_stages()) * micro_batches_, 0) {
    // A forward takes the newest version: as many updates as its lane has done before it.
    std::vector<size_t> newest(static_cast<size_t>(schedule.num_stages()), 0);
    for (const Lane& lane : schedule.lanes) {
      for (const Action& action : lane) {
        if (!index.names_what_exists(action)) continue;  // validate()'s to report
        const auto stage = static_cast<size_t>(action.stage);
        if (action.op == Op::optimizer_step) newest[stage] = std::min(newest[stage] + 1, updates_);
        if (action.op == Op::forward) version_[pass(action)] = newest[stage];
      }
    }
  }

  void add(const Span& span) {
    const auto stage = static_cast<size_t>(span.action.stage);
    const Op op = span.action.op;
    if (op == Op::optimizer_step) {
      made_[stage * updates_ + static_cast<size_t>(span.action.micro_batch)] = span.end_s;
    }
    if (op != Op::forward && !has_weight_part(op)) return;
    Use& use = uses_[stage * (updates_ + 1) + version_[pass(span.action)]];
    use.in_flight += op == Op::forward ? 1 : -1;
    if (op != Op::forward) use.until = std::max(use.until, span.end_s);
  }

  // An old version goes when it isn't the newest any more and its last backward has ended.
  void add_changes(size_t stage, double bytes, std::vector<Change>& changes) const {
    for (size_t update = 0; update < updates_; ++update) {
      const double made = made_[stage * updates_ + update];
      if (made < 0) return;
      changes.push_back({made, bytes});
      const Use& use = uses_[stage * (updates_ + 1) + update];
      if (use.in_flight == 0) changes.push_back({std::max(made, use.until), -bytes});
    }
  }

 private:
  struct Use {
    int in_flight = 0;  // forwards without their backward: 0 in the end, if the step didn't break off
    double until = 0;   // the end of its last backward
  };

  size_t pass(const Action& action) const {
    return static_cast<size_t>(action.stage) * micro_batches_ + static_cast<size_t>(action.micro_batch);
  }

  size_t updates_, micro_batches_;
  std::vector<double> made_;     // per stage and update; -1: not in the trace
  std::vector<Use> uses_;        // per stage and version
  std::vector<size_t> version_;  // per stage and micro-batch: of its forward
};

std::vector<MemoryLevel> levels(double at_start, std::vector<Change> changes) {
  std::ranges::sort(changes, {}, &Change::at_s);
  std::vector<MemoryLevel> result = {{0, at_start}};
  for (const Change& change : changes) {
    if (change.at_s > result.back().at_s) result.push_back({change.at_s, result.back().bytes});
    result.back().bytes += change.bytes;
  }
  const auto same = [](const MemoryLevel& a, const MemoryLevel& b) { return a.bytes == b.bytes; };
  result.erase(std::unique(result.begin(), result.end(), same), result.end());
  return result;
}

}  // namespace

Trace with_memory(const Schedule& schedule, const CostModel& costs, Trace trace) {
  TROIKA_ASSERT(ActionIndex::fits(schedule), "there is a trace of it, so it can run");
  const ActionIndex index(schedule);
  check(schedule, index, costs, trace);
  const auto lanes = static_cast<size_t>(schedule.num_lanes());
  std::vector<std::vector<Change>> changes(lanes);
  std::vector<double> at_start(lanes, 0);
  Versions versions(schedule, index);
  for (const Span& span : trace.spans) {
    const StageCost& cost = costs.stages[static_cast<size_t>(span.action.stage)];
    add_held(schedule, cost, span, changes[static_cast<size_t>(span.rank)]);
    versions.add(span);
  }
  for (size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const StageCost& cost = costs.stages[stage];
    const auto lane = static_cast<size_t>(schedule.lane_of_stage[stage]);
    at_start[lane] += cost.optimizer_bytes + cost.gradient_bytes + cost.weight_bytes;
    versions.add_changes(stage, cost.weight_bytes, changes[lane]);
  }
  trace.memory.clear();
  for (size_t lane = 0; lane < lanes; ++lane) {
    trace.memory.push_back(levels(at_start[lane], std::move(changes[lane])));
  }
  return trace;
}

}  // namespace troika

#include "troika/simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "troika/base/error.h"
#include "troika/schedule/graph.h"

namespace troika {
namespace {

void check(const std::string& of, std::string_view what, double value) {
  if (value >= 0 && std::isfinite(value)) return;
  fail("{}: expected {} of 0 or more, got {}", of, what, value);
}

void check(const std::string& of, const Link& link) {
  check(of, "a latency", link.latency_s);
  check(of, "seconds per byte", link.seconds_per_byte);
}

void check(const Schedule& schedule, const CostModel& costs) {
  if (!ActionIndex::fits(schedule)) {
    fail(
        "this schedule can't be simulated: its numbers of stages, micro-batches and edges don't fit what "
        "stands in its lanes (`troika schedule check` says more)");
  }
  if (costs.stages.size() != static_cast<size_t>(schedule.num_stages())) {
    fail("a schedule of {} stages needs the costs of as many, got those of {}", schedule.num_stages(),
         costs.stages.size());
  }
  for (size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const StageCost& cost = costs.stages[stage];
    const std::string of = fmt::format("costs of stage {}", stage);
    check(of, "seconds of a forward", cost.forward_s);
    check(of, "seconds of the backward's input part", cost.input_s);
    check(of, "seconds of the backward's weight part", cost.weight_s);
    check(of, "seconds of a backward", cost.backward_s.value_or(0));
    check(of, "seconds of a load", cost.load_s);
    check(of, "seconds of a reduction", cost.reduce_s);
    check(of, "seconds of an update", cost.update_s);
    check(of, "bytes of output", cost.output_bytes);
  }
  check("costs of a message", costs.link);
  for (const auto& [lanes, link] : costs.links) {
    check(fmt::format("costs of a message from lane {} to lane {}", lanes.first, lanes.second), link);
  }
}

// The lanes go on in turn, each until it needs what is not finished yet. Then it waits in the list of that
// action, which calls it when it ends: every action and every need is looked at once.
class Run {
 public:
  Run(const Schedule& schedule, const CostModel& costs)
      : costs_(costs),
        graph_(schedule),
        ends_(static_cast<size_t>(graph_.size()), kNotDone),
        waiting_for_(static_cast<size_t>(graph_.size()), -1) {
    trace_.ranks = schedule.num_lanes();
    trace_.spans.resize(static_cast<size_t>(graph_.size()));
    for (int lane = 0; lane < schedule.num_lanes(); ++lane) {
      cursors_.push_back({.next = graph_.first_of(lane)});
      ready_.push_back(lane);
    }
  }

  Trace run() && {
    while (!ready_.empty()) {
      const int lane = ready_.back();
      ready_.pop_back();
      while (cursors_[static_cast<size_t>(lane)].next < graph_.first_of(lane + 1) && needs_are_met(lane)) {
        do_next(lane);
      }
    }
    for (int lane = 0; lane < trace_.ranks; ++lane) fail_if_stuck(lane);
    return std::move(trace_);
  }

 private:
  static constexpr double kNotDone = -1;

  struct Cursor {
    int next = 0;        // number of the lane's next action
    size_t met = 0;      // how many of its needs are finished
    double start = 0;    // no earlier than this: the lane is busy, or what it needs hasn't arrived
    int neighbour = -1;  // the next lane in the list of those that wait for the same action
  };

  double end_of(int number) const { return ends_[static_cast<size_t>(number)]; }

  double arrival(int needed, int number) const {
    const int from = graph_.lane(needed), to = graph_.lane(number);
    if (from == to) return end_of(needed);
    // A gradient is as large as the activation it belongs to: the output of the edge's earlier stage.
    const int earlier = std::min(graph_.action(needed).stage, graph_.action(number).stage);
    const double bytes = costs_.stages[static_cast<size_t>(earlier)].output_bytes;
    return end_of(needed) + costs_.message_seconds(from, to, bytes);
  }

  bool needs_are_met(int lane) {
    Cursor& cursor = cursors_[static_cast<size_t>(lane)];
    const auto needs = graph_.needs(cursor.next);
    for (; cursor.met < needs.size(); ++cursor.met) {
      const int needed = needs[cursor.met];
      if (end_of(needed) == kNotDone) {
        cursor.neighbour = std::exchange(waiting_for_[static_cast<size_t>(needed)], lane);
        return false;
      }
      cursor.start = std::max(cursor.start, arrival(needed, cursor.next));
    }
    return true;
  }

  void do_next(int lane) {
    Cursor& cursor = cursors_[static_cast<size_t>(lane)];
    const Action& action = graph_.action(cursor.next);
    if (!graph_.index().names_what_exists(action)) {
      fail("this schedule can't be simulated: {} in lane {}, step {}, names a stage, micro-batch or edge {}",
           to_string(action), lane, cursor.next - graph_.first_of(lane), "that it doesn't have");
    }
    const double end = cursor.start + costs_.seconds(action);
    trace_.spans[static_cast<size_t>(cursor.next)] = {lane, action, cursor.start, end};
    ends_[static_cast<size_t>(cursor.next)] = end;
    int waiting = std::exchange(waiting_for_[static_cast<size_t>(cursor.next)], -1);
    while (waiting >= 0) {
      ready_.push_back(waiting);
      waiting = std::exchange(cursors_[static_cast<size_t>(waiting)].neighbour, -1);
    }
    cursor = {.next = cursor.next + 1, .start = end};
  }

  void fail_if_stuck(int lane) {
    const Cursor& cursor = cursors_[static_cast<size_t>(lane)];
    if (!std::isfinite(cursor.start)) fail("the times of this schedule add up to more than a number holds");
    if (cursor.next == graph_.first_of(lane + 1)) return;
    fail("this schedule can't run: lane {} would wait forever at step {}, where {} needs {} {}", lane,
         cursor.next - graph_.first_of(lane), to_string(graph_.action(cursor.next)),
         to_string(graph_.action(graph_.needs(cursor.next)[cursor.met])),
         "(`troika schedule check` says more)");
  }

  const CostModel& costs_;
  const ActionGraph graph_;
  std::vector<double> ends_;      // per action: kNotDone, or its span's end, which is quicker to find here
  std::vector<int> waiting_for_;  // per action: the first lane that waits for it, or -1
  std::vector<Cursor> cursors_;   // per lane
  std::vector<int> ready_;        // lanes that may go on
  Trace trace_;
};

}  // namespace

Trace simulate(const Schedule& schedule, const CostModel& costs) {
  check(schedule, costs);
  return Run(schedule, costs).run();
}

}  // namespace troika

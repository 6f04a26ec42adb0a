#include "troika/schedule/order.h"

#include <set>

#include "troika/base/error.h"
#include "troika/base/split.h"
#include "troika/schedule/liveness.h"

namespace troika {
namespace {

int step_of(const ActionGraph& graph, int number) { return number - graph.first_of(graph.lane(number)); }

void check_needs(const ActionGraph& graph, FaultList& faults) {
  for (int number = 0; number < graph.size(); ++number) {
    for (const int needed : graph.needs(number)) {
      if (needed < number || graph.lane(needed) != graph.lane(number)) continue;
      faults.add(graph.lane(number), step_of(graph, number), graph.action(number),
                 fmt::format("it needs {} first, which stands later in its lane, at step {}",
                             to_string(graph.action(needed)), step_of(graph, needed)));
      break;
    }
  }
}

// The gradients of a stage are added up in one place until they are reduced, so those of the next update must
// wait until that has happened; its optimizer step may come later.
class Shares {
 public:
  Shares(const Schedule& schedule, FaultList& faults)
      : s_(schedule), faults_(faults), stages_(static_cast<size_t>(schedule.num_stages())) {}

  void look(const Action& action, int lane, int step) {
    Stage& stage = stages_[static_cast<size_t>(action.stage)];
    if (action.op == Op::reduce_gradients) check_number(action, stage.reductions++, lane, step);
    if (action.op == Op::optimizer_step) check_number(action, stage.updates++, lane, step);
    if (!has_weight_part(action.op)) return;
    if (s_.num_updates == 1) return;
    if (stage.gradients == share_of(stage.complete).end) ++stage.complete;
    ++stage.gradients;
    const int open = s_.stated.reductions ? stage.reductions : stage.complete;
    if (open >= s_.num_updates || action.micro_batch < share_of(open).end) return;
    faults_.add(
        lane, step, action,
        fmt::format("its gradient would be added to those of update {}, micro-batches {} to {}, which "
                    "are not {} yet",
                    open, share_of(open).begin, share_of(open).end - 1,
                    s_.stated.reductions ? "reduced" : "complete"));
  }

 private:
  struct Stage {
    int reductions = 0, updates = 0;  // stated, so far
    int64_t gradients = 0;            // backwards of both parts, so far
    int complete = 0;                 // updates whose gradients are all there
  };

  Range share_of(int update) const { return share({0, s_.num_micro_batches}, s_.num_updates, update); }

  void check_number(const Action& action, int expected, int lane, int step) {
    if (action.micro_batch == expected) return;
    faults_.add(lane, step, action,
                fmt::format("it is number {} of its stage, and says that it is for update {}: they come in "
                            "order, from 0",
                            expected, action.micro_batch));
  }

  const Schedule& s_;
  FaultList& faults_;
  std::vector<Stage> stages_;
};

// The weights of one stage while its lane runs: what is kept is the newest version and the newest of those
// that forwards in flight have used.
class Versions {
 public:
  void forward(int& version) {
    version = static_cast<int>(in_flight_.size()) - 1;
    ++in_flight_.back();
  }
  void end(int version) {
    if (--in_flight_[static_cast<size_t>(version)] > 0 || version < dropped_ || version == newest()) return;
    --held_;
  }
  void update(int most) {
    if (in_flight_.back() > 0) ++held_;
    in_flight_.push_back(0);
    if (held_ <= most) return;
    dropped_ = oldest() + 1;
    --held_;
  }
  bool lost(int version) const { return version < dropped_; }
  int newest() const { return static_cast<int>(in_flight_.size()) - 1; }
  int oldest() const {
    int version = dropped_;
    while (version < newest() && in_flight_[static_cast<size_t>(version)] == 0) ++version;
    return version;
  }

 private:
  int held_ = 1;
  int dropped_ = 0;                   // all older versions are gone
  std::vector<int> in_flight_ = {0};  // forwards of each version whose backward has not ended
};

}  // namespace

void check_lane_order(const Schedule& schedule, const ActionGraph& graph, FaultList& faults) {
  check_needs(graph, faults);
  Shares shares(schedule, faults);
  for (int lane = 0; lane < schedule.num_lanes(); ++lane) {
    int step = 0;
    for (const Action& action : schedule.lanes[static_cast<size_t>(lane)]) shares.look(action, lane, step++);
  }
}

void check_message_order(const ActionGraph& graph, const LaneMessages& messages, FaultList& faults) {
  std::set<std::pair<int, int>> wrong;  // directed pairs of lanes: what follows the first fault is noise
  for (int number = 0; number < graph.size(); ++number) {
    const Action& action = graph.action(number);
    if (!is_message(action.op) || is_send(action.op)) continue;
    const int send = messages.send_of(number);
    if (graph.action(send) == far_end(action)) continue;
    const int from = graph.lane(send), to = graph.lane(number);
    if (!wrong.emplace(from, to).second) continue;
    faults.add(
        to, step_of(graph, number), action,
        fmt::format("number {} (from 0) of the messages from lane {} to lane {} is received as {}, and "
                    "sent as {} in lane {}, step {}: both lanes must have their messages in the same "
                    "order",
                    messages.place(number), from, to, to_string(action), to_string(graph.action(send)), from,
                    step_of(graph, send)));
  }
}

void check_versions(const Schedule& s, FaultList& faults) {
  if (!s.stated.updates) return;
  const auto stages = static_cast<size_t>(s.num_stages());
  const auto micro_batches = static_cast<size_t>(s.num_micro_batches);
  std::vector<Versions> versions(stages);
  std::vector<int> version_of(stages * micro_batches, 0);
  std::vector<bool> said(stages, false);
  for (int lane = 0; lane < s.num_lanes(); ++lane) {
    int step = -1;
    for (const Action& action : s.lanes[static_cast<size_t>(lane)]) {
      ++step;
      const auto stage = static_cast<size_t>(action.stage);
      const bool backward = is_pass(action.op) && action.op != Op::forward;
      if (action.op == Op::optimizer_step) versions[stage].update(s.max_versions[stage]);
      if (action.op != Op::forward && !backward) continue;
      int& version = version_of[stage * micro_batches + static_cast<size_t>(action.micro_batch)];
      if (action.op == Op::forward) versions[stage].forward(version);
      if (backward && versions[stage].lost(version) && !said[stage]) {
        said[stage] = true;
        faults.add(lane, step, action,
                   fmt::format("{} {} would find version {} of the weights, its forward used version {}: "
                               "stage {} keeps {} version{} (versions= in the header)",
                               action.op == Op::recompute ? "recompute" : "backward", to_string(action),
                               versions[stage].oldest(), version, stage, s.max_versions[stage],
                               s.max_versions[stage] == 1 ? "" : "s"));
      }
      if (has_weight_part(action.op)) versions[stage].end(version);
    }
  }
}

void check_memory(const Schedule& schedule, double limit, FaultList& faults) {
  const std::vector<LanePeaks> peaks = lane_peaks(schedule);
  int found = 0;
  for (int lane = 0; lane < schedule.num_lanes() && found < kMostFaults; ++lane) {
    const double held = peaks[static_cast<size_t>(lane)].held;
    if (!(held > limit)) continue;
    const int step = first_step_above(schedule, lane, limit);
    if (step < 0) continue;
    ++found;
    faults.add(lane, step, schedule.lanes[static_cast<size_t>(lane)][static_cast<size_t>(step)],
               fmt::format("here the lane holds more than the limit of {:.6g} micro-batches; its peak is "
                           "{:.6g}",
                           limit, held));
  }
}

}  // namespace troika

#include "troika/schedule/graph.h"

#include <algorithm>

#include "troika/base/error.h"

namespace troika {
namespace {

// One row of the index per kind of action that has a stage and a micro-batch; B and I + W differ.
constexpr int64_t kPerMicroBatch = 6, kPerUpdate = 2, kPerMessage = 4;

int64_t row(Op op) {
  switch (op) {
    case Op::load:
    case Op::reduce_gradients:
    case Op::send_activation:
      return 0;
    case Op::forward:
    case Op::optimizer_step:
    case Op::receive_activation:
      return 1;
    case Op::recompute:
    case Op::send_gradient:
      return 2;
    case Op::backward:
    case Op::receive_gradient:
      return 3;
    case Op::backward_input:
      return 4;
    case Op::backward_weight:
      return 5;
  }
  return -1;
}

}  // namespace

bool ActionIndex::fits(const Schedule& s) {
  const auto actions = static_cast<int64_t>(s.num_actions());
  const auto in_a_lane = [&](int lane) { return lane >= 0 && lane < s.num_lanes(); };
  const auto forwards_along = [&](const Edge& e) {
    return e.from >= 0 && e.from < e.to && e.to < s.num_stages();
  };
  const auto crossing =
      std::ranges::count_if(s.edges, [&](const Edge& e) { return forwards_along(e) && s.crosses_lanes(e); });
  const auto stages = static_cast<size_t>(s.num_stages());
  return s.num_micro_batches >= 1 && s.num_updates >= 1 && s.num_updates <= s.num_micro_batches &&
         int64_t{s.num_stages()} * s.num_micro_batches <= actions && s.edges.size() <= stages * kMostEdges &&
         (!s.stated.messages || int64_t{crossing} * s.num_micro_batches <= actions) &&
         std::ranges::all_of(s.lane_of_stage, in_a_lane) && std::ranges::all_of(s.edges, forwards_along) &&
         std::ranges::is_sorted(s.edges) && std::ranges::adjacent_find(s.edges) == s.edges.end() &&
         s.max_versions.size() == stages && (s.recomputed.empty() || s.recomputed.size() == stages);
}

ActionIndex::ActionIndex(const Schedule& schedule)
    : schedule_(schedule),
      stages_(schedule.num_stages()),
      micro_batches_(schedule.num_micro_batches),
      edges_from_(static_cast<size_t>(schedule.num_stages())) {
  TROIKA_ASSERT(fits(schedule), "the schedule must be checked first");
  int crossing = 0;
  for (const Edge& edge : schedule.edges) {
    if (schedule.stated.messages && schedule.crosses_lanes(edge)) {
      edges_from_[static_cast<size_t>(edge.from)].emplace_back(edge.to, crossing++);
    }
  }
  const int64_t size = stages_ * micro_batches_ * kPerMicroBatch +
                       stages_ * schedule.num_updates * kPerUpdate + crossing * micro_batches_ * kPerMessage;
  number_.assign(static_cast<size_t>(size), -1);
  int number = 0;
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      const int64_t at = key(action);
      if (at >= 0 && number_[static_cast<size_t>(at)] < 0) number_[static_cast<size_t>(at)] = number;
      ++number;
    }
  }
}

int64_t ActionIndex::key(const Action& action) const {
  if (action.stage < 0 || action.stage >= stages_ || action.micro_batch < 0) return -1;
  if (is_message(action.op)) return message_key(action);
  const bool whole_stage = is_whole_stage(action.op);
  const int64_t columns = whole_stage ? schedule_.num_updates : micro_batches_;
  if (action.micro_batch >= columns) return -1;
  const int64_t within = (row(action.op) * stages_ + action.stage) * columns + action.micro_batch;
  return whole_stage ? stages_ * micro_batches_ * kPerMicroBatch + within : within;
}

int64_t ActionIndex::message_key(const Action& action) const {
  if (action.peer < 0 || action.peer >= stages_ || action.micro_batch >= micro_batches_) return -1;
  const bool downstream = action.op == Op::send_activation || action.op == Op::receive_gradient;
  const int from = downstream ? action.stage : action.peer;
  const int to = downstream ? action.peer : action.stage;
  const auto& edges = edges_from_[static_cast<size_t>(from)];
  const auto edge = std::ranges::lower_bound(edges, to, {}, &std::pair<int, int>::first);
  if (edge == edges.end() || edge->first != to) return -1;
  return stages_ * micro_batches_ * kPerMicroBatch + stages_ * schedule_.num_updates * kPerUpdate +
         (edge->second * micro_batches_ + action.micro_batch) * kPerMessage + row(action.op);
}

int ActionIndex::find(const Action& action) const {
  const int64_t at = key(action);
  return at < 0 ? -1 : number_[static_cast<size_t>(at)];
}

ActionGraph::ActionGraph(const Schedule& schedule) : index_(schedule), dependencies_(schedule) {
  const size_t count = schedule.num_actions();
  actions_.reserve(count);
  lane_.reserve(count);
  for (int lane = 0; lane < schedule.num_lanes(); ++lane) {
    first_of_lane_.push_back(size());
    for (const Action& action : schedule.lanes[static_cast<size_t>(lane)]) {
      actions_.push_back(&action);
      lane_.push_back(lane);
    }
  }
  first_of_lane_.push_back(size());
  begin_.reserve(count + 1);
  needs_.reserve(count + count / 2);
  for (const Action* action : actions_) {
    begin_.push_back(needs_.size());
    // One that names what the schedule doesn't have is validate()'s to report.
    if (!index_.names_what_exists(*action)) continue;
    dependencies_.for_each(*action, [&](const Action& needed) { resolve(needed); });
  }
  begin_.push_back(needs_.size());
}

// An action that is not stated stands for what it needs itself. Recursion is a few deep: receive, send,
// backward.
void ActionGraph::resolve(const Action& needed) {
  if (const int number = index_.find(needed); number >= 0) {
    needs_.push_back(number);
    return;
  }
  Action whole = needed;
  switch (needed.op) {
    case Op::backward_input:
    case Op::backward_weight:
      whole.op = Op::backward;
      if (const int number = index_.find(whole); number >= 0) needs_.push_back(number);
      return;
    case Op::load:
    case Op::forward:
    case Op::backward:
      return;
    case Op::recompute:
    case Op::reduce_gradients:
    case Op::optimizer_step:
    case Op::send_activation:
    case Op::receive_activation:
    case Op::send_gradient:
    case Op::receive_gradient:
      break;
  }
  dependencies_.for_each(needed, [&](const Action& finer) { resolve(finer); });
}

}  // namespace troika

#include "troika/schedule/catalogue/vee_run.h"

#include <algorithm>
#include <tuple>

namespace troika::vee {

bool Outcome::operator<(const Outcome& other) const {
  if (complete != other.complete) return complete;
  return std::tie(cost, spans, makespan) < std::tie(other.cost, other.spans, other.makespan);
}

VeeRun::VeeRun(const Shape& shape) : shape_(shape) {
  ready_.resize(shape.num_passes());
  start_.resize(shape.num_passes());
  orders_.resize(static_cast<size_t>(shape.lanes));
  for (auto& order : orders_) order.reserve(static_cast<size_t>(kPasses * shape.micro_batches));
  while (leaves_ < static_cast<size_t>(shape.lanes)) leaves_ *= 2;
  wake_.resize(2 * leaves_);
}

Outcome VeeRun::run(const Ranks& ranks, const Rules& rules) {
  std::fill(ready_.begin(), ready_.end(), kNever);
  for (int i = 0; i < shape_.micro_batches; ++i) {
    const size_t at = shape_.at(0, kForwardDown, i);
    ready_[at] = rules.not_before != nullptr ? (*rules.not_before)[at] : 0;
  }
  lanes_.assign(static_cast<size_t>(shape_.lanes), LaneState{});
  for (auto& order : orders_) order.clear();
  std::fill(wake_.begin(), wake_.end(), kNever);
  most_idle_ = 0;
  set_wake(0, 0);
  size_t left = shape_.num_passes();
  while (left > 0) {
    const Ticks now = wake_[1];
    if (now >= kNever) return {};
    size_t node = 1;
    while (node < leaves_) node = wake_[2 * node] == now ? 2 * node : 2 * node + 1;
    const int lane = static_cast<int>(node - leaves_);
    const Choice choice = choose(lane, now, ranks, rules);
    if (choice.pass < 0) {
      set_wake(lane, choice.look_again);
      continue;
    }
    start(lane, choice.pass, now, rules);
    --left;
  }
  Outcome outcome = {.complete = true, .cost = 0, .spans = 0, .makespan = 0};
  for (const LaneState& lane : lanes_) {
    const Ticks span = lane.free_at - lane.first_start;
    outcome.cost = std::max(outcome.cost, span);
    outcome.spans += span;
    outcome.makespan = std::max(outcome.makespan, lane.free_at);
  }
  return outcome;
}

std::vector<Ticks> VeeRun::idle() const {
  std::vector<Ticks> idle;
  for (const LaneState& lane : lanes_) idle.push_back(lane.idle);
  return idle;
}

bool VeeRun::has_room(const LaneState& lane, int pass, const Rules& rules) const {
  if (pass > kForwardUp) return true;
  return lane.held < shape_.most_held - (pass == kForwardDown ? rules.reserve : 0);
}

VeeRun::Choice VeeRun::choose(int lane, Ticks now, const Ranks& ranks, const Rules& rules) const {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  // The pass of the lowest rank that memory has room for, and the lowest rank without room.
  int first = -1;
  Ticks first_rank = kNever, first_ready = kNever, full_rank = kNever;
  for (int pass = 0; pass < kChain; ++pass) {
    const int i = state.next[static_cast<size_t>(pass)];
    if (i >= shape_.micro_batches) continue;
    const size_t at = shape_.at(lane, pass, i);
    if (!has_room(state, pass, rules)) {
      full_rank = std::min(full_rank, ranks[at]);
    } else if (ranks[at] < first_rank) {
      first = pass, first_rank = ranks[at], first_ready = ready_[at];
    }
  }
  int weight = -1;
  Ticks weight_rank = kNever;
  for (const int pass : {kWeightDown, kWeightUp}) {
    const int input = pass == kWeightDown ? kInputDown : kInputUp;
    const int i = state.next[static_cast<size_t>(pass)];
    if (i >= state.next[static_cast<size_t>(input)]) continue;
    const Ticks rank = ranks[shape_.at(lane, pass, i)];
    if (weight < 0 || rank < weight_rank) weight = pass, weight_rank = rank;
  }
  if (weight >= 0 && (weight_rank < first_rank || full_rank < first_rank)) return {weight};
  if (first >= 0 && first_ready <= now) return {first};
  Choice choice = {ready_ahead(lane, now, first, ranks, rules)};
  if (choice.pass >= 0) return choice;
  if (weight >= 0 && now + shape_.weight <= first_ready + rules.late_by_weight) return {weight};
  if (weight >= 0 && worth_a_delay(lane, first, first_ready, rules)) return {weight};
  choice.look_again = first_ready;
  for (int pass = 0; rules.look_ahead > 0 && pass < kChain; ++pass) {
    const int i = state.next[static_cast<size_t>(pass)];
    if (i >= shape_.micro_batches) continue;
    const Ticks ready = ready_[shape_.at(lane, pass, i)];
    if (ready > now) choice.look_again = std::min(choice.look_again, ready);
  }
  return choice;
}

int VeeRun::ready_ahead(int lane, Ticks now, int first, const Ranks& ranks, const Rules& rules) const {
  if (first < 0 || rules.look_ahead <= 0) return -1;
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  const size_t first_at = shape_.at(lane, first, state.next[static_cast<size_t>(first)]);
  int best = -1;
  Ticks best_rank = ranks[first_at] + rules.look_ahead + 1;
  for (int pass = 0; pass < kChain; ++pass) {
    const int i = state.next[static_cast<size_t>(pass)];
    if (i >= shape_.micro_batches || pass == first) continue;
    const size_t at = shape_.at(lane, pass, i);
    if (ready_[at] > now || !has_room(state, pass, rules)) continue;
    // A forward that goes first must leave room for the one it passes.
    const int after = state.held + 1 + (pass == kForwardDown ? 1 : 0);
    if (pass <= kForwardUp && first <= kForwardUp && after >= shape_.most_held) continue;
    if (now + shape_.time_of(pass) > ready_[first_at] + rules.overlap) continue;
    if (ranks[at] < best_rank) best = pass, best_rank = ranks[at];
  }
  return best;
}

bool VeeRun::worth_a_delay(int lane, int before, Ticks gap_end, const Rules& rules) const {
  if (!rules.balanced && rules.allowance < 0 && rules.lane_allowance == nullptr) return false;
  if (before == kInputDown && !rules.before_input_down) return false;
  if (before <= kForwardUp && !rules.before_forward) return false;
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  Ticks allowance = std::max<Ticks>(0, rules.allowance);
  if (rules.balanced) allowance = std::max(allowance, most_idle_);
  if (rules.lane_allowance != nullptr) {
    allowance = std::max(allowance, (*rules.lane_allowance)[static_cast<size_t>(lane)]);
  }
  return state.idle + (gap_end - state.free_at) > allowance;
}

void VeeRun::start(int lane, int pass, Ticks now, const Rules& rules) {
  LaneState& state = lanes_[static_cast<size_t>(lane)];
  if (state.first_start < 0) {
    state.first_start = now;
  } else {
    state.idle += now - state.free_at;
    most_idle_ = std::max(most_idle_, state.idle);
  }
  const int i = state.next[static_cast<size_t>(pass)]++;
  start_[shape_.at(lane, pass, i)] = now;
  orders_[static_cast<size_t>(lane)].push_back(static_cast<Pass>(pass));
  state.free_at = now + shape_.time_of(pass);
  if (pass <= kForwardUp) ++state.held;
  if (pass > kInputDown) --state.held;
  set_wake(lane, state.free_at);
  if (pass <= kInputDown) pass_on(lane, pass, i, state.free_at, rules);
}

// The result of a pass goes to the next lane down or up the V, or stays where the V turns.
void VeeRun::pass_on(int lane, int pass, int micro_batch, Ticks end, const Rules& rules) {
  const bool down = to_higher_lanes(pass);
  const bool turns = lane == (down ? shape_.lanes - 1 : 0);
  if (turns && pass == kInputDown) return;
  const int to = turns ? lane : down ? lane + 1 : lane - 1;
  const int next = turns ? pass + 1 : pass;
  const size_t at = shape_.at(to, next, micro_batch);
  Ticks ready = turns ? end : end + shape_.message;
  if (rules.not_before != nullptr) ready = std::max(ready, (*rules.not_before)[at]);
  ready_[at] = ready;
  const LaneState& state = lanes_[static_cast<size_t>(to)];
  if (state.next[static_cast<size_t>(next)] != micro_batch) return;
  const Ticks from = std::max(state.free_at, ready);
  if (from < wake_[leaves_ + static_cast<size_t>(to)]) set_wake(to, from);
}

void VeeRun::set_wake(int lane, Ticks at) {
  size_t node = leaves_ + static_cast<size_t>(lane);
  wake_[node] = at;
  for (node /= 2; node >= 1; node /= 2) wake_[node] = std::min(wake_[2 * node], wake_[2 * node + 1]);
}

}  // namespace troika::vee

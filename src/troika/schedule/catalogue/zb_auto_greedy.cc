#include "troika/schedule/catalogue/zb_auto_greedy.h"

#include <algorithm>
#include <queue>

namespace troika::zb_auto {

namespace {

struct LaneState {
  int forwards = 0, inputs = 0, weights = 0;
  int most_in_flight = 0, most_pending = 0;
  Pass last = Pass::input;  // F or I
  Ticks free = 0;
  Ticks idle = 0;        // since its first pass
  Ticks wakes = kNever;  // when it chooses next
};

/// Lanes choose in order of time, so that whoever chooses knows what has been started anywhere before.
class Greedy {
 public:
  Greedy(const Problem& problem, const Policy& policy) : problem_(problem), policy_(policy) {
    const auto lanes = static_cast<size_t>(problem.lanes);
    lanes_.resize(lanes);
    made_.order.resize(lanes);
    forward_ready_.assign(problem.num_passes() / 3, kNever);
    input_ready_.assign(problem.num_passes() / 3, kNever);
    std::fill_n(forward_ready_.begin(), problem.micro_batches, 0);
    for (int lane = 0; lane < problem.lanes; ++lane) {
      made_.order[static_cast<size_t>(lane)].reserve(3 * static_cast<size_t>(problem.micro_batches));
      LaneState& state = lanes_[static_cast<size_t>(lane)];
      state.most_in_flight = most_in_flight(problem.lanes - lane);
      state.most_pending = most_pending(lane);
    }
  }

  Made run() {
    wake(0);
    while (!queue_.empty()) {
      const auto [now, lane] = queue_.top();
      queue_.pop();
      LaneState& state = lanes_[static_cast<size_t>(lane)];
      if (state.wakes != now) continue;  // woken earlier in the meantime
      state.wakes = kNever;
      place(lane, state, now);
    }
    made_.score.cost = made_.score.makespan = 0;
    for (int lane = 0; lane < problem_.lanes; ++lane) {
      const LaneState& state = lanes_[static_cast<size_t>(lane)];
      made_.score.makespan = std::max(made_.score.makespan, state.free);
      made_.score.cost = std::max(made_.score.cost, problem_.work() + state.idle);
    }
    made_.score.peak = peak_held(made_.order);
    return std::move(made_);
  }

 private:
  int most_in_flight(int to_go) const {
    switch (policy_.depth) {
      case Depth::limit:
        return problem_.limit;
      case Depth::one:
        return to_go;
      case Depth::one_and_half:
        return (3 * to_go + 1) / 2;
      case Depth::two:
        return 2 * to_go - 1;
    }
    return problem_.limit;
  }
  int most_pending(int lane) const {
    switch (policy_.lag) {
      case Lag::limit:
        return problem_.limit;
      case Lag::one:
        return lane;
      case Lag::two:
        return 2 * lane;
    }
    return problem_.limit;
  }

  bool at_limit(const LaneState& state) const { return state.forwards - state.weights >= problem_.limit; }
  Ticks next_forward(int lane, const LaneState& state) const {
    if (state.forwards == problem_.micro_batches || at_limit(state)) return kNever;
    if (state.forwards - state.inputs >= state.most_in_flight) return kNever;
    return forward_ready_[problem_.at(lane, state.forwards)];
  }
  Ticks next_input(int lane, const LaneState& state) const {
    return state.inputs < state.forwards ? input_ready_[problem_.at(lane, state.inputs)] : kNever;
  }

  void wake(int lane) {
    LaneState& state = lanes_[static_cast<size_t>(lane)];
    Ticks at = state.free;
    if (state.inputs == state.weights) {
      at = std::max(at, std::min(next_forward(lane, state), next_input(lane, state)));
    }
    if (at >= kNever || at == state.wakes) return;
    state.wakes = at;
    queue_.emplace(at, lane);
  }

  /// `forward` and `input`: when they can start, from now on.
  Pass choose(const LaneState& state, Ticks now, Ticks forward, Ticks input) const {
    const int pending = state.inputs - state.weights;
    if (pending > state.most_pending) return Pass::weight;
    const Ticks wait = std::min(forward, input) - now;
    if (input > now && input < kNever && state.idle + (input - now) <= policy_.idle_allowance) {
      const bool would_run_over = forward < input
                                      ? policy_.idle_before_f && forward + problem_.forward > input
                                      : pending > 0 && now + problem_.weight > input;
      if (would_run_over) return Pass::input;
    }
    if (pending > 0) {
      if (wait > 0 && 4 * wait >= problem_.weight * (4 - policy_.overrun_quarters)) return Pass::weight;
      if (policy_.free_memory && state.forwards < problem_.micro_batches && at_limit(state)) {
        return Pass::weight;
      }
    }
    if (forward != input) return forward < input ? Pass::forward : Pass::input;
    return policy_.alternate && state.last == Pass::input ? Pass::forward : Pass::input;
  }

  void place(int lane, LaneState& state, Ticks now) {
    const Ticks forward = std::max(now, next_forward(lane, state));
    const Ticks input = std::max(now, next_input(lane, state));
    const Pass pass = choose(state, now, forward, input);
    made_.order[static_cast<size_t>(lane)].push_back(pass);
    const Ticks start = pass == Pass::forward ? forward : pass == Pass::input ? input : now;
    if (state.forwards > 0) state.idle += start - state.free;
    state.free = start + problem_.ticks(pass);
    const Ticks arrives = state.free + problem_.message;
    switch (pass) {
      case Pass::forward:
        if (lane + 1 < problem_.lanes) {
          forward_ready_[problem_.at(lane + 1, state.forwards)] = arrives;
          wake(lane + 1);
        } else {
          input_ready_[problem_.at(lane, state.forwards)] = state.free;
        }
        state.last = pass;
        ++state.forwards;
        break;
      case Pass::input:
        if (lane > 0) {
          input_ready_[problem_.at(lane - 1, state.inputs)] = arrives;
          wake(lane - 1);
        }
        state.last = pass;
        ++state.inputs;
        break;
      case Pass::weight:
        ++state.weights;
        break;
    }
    wake(lane);
  }

  const Problem& problem_;
  const Policy& policy_;
  std::vector<LaneState> lanes_;
  std::vector<Ticks> forward_ready_, input_ready_;  // kNever: not known yet
  using Event = std::pair<Ticks, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  Made made_;
};

}  // namespace

Made make_order(const Problem& problem, const Policy& policy) { return Greedy(problem, policy).run(); }

void for_each_policy(const Problem& problem, const std::function<bool(const Policy&)>& use) {
  constexpr Depth kDepths[] = {Depth::limit, Depth::two, Depth::one, Depth::one_and_half};
  constexpr Lag kLags[] = {Lag::limit, Lag::one, Lag::two};
  const Ticks bubble = least_cost(problem) - problem.work();
  // No lane needs to idle less than the one that must idle most; a bit more may let it keep its rhythm.
  std::vector<Ticks> allowances = {-1, bubble};
  for (const int quarters : {-1, 1, 2, 4}) allowances.push_back(bubble + problem.weight * quarters / 4);
  for (const Ticks allowance : allowances) {
    for (const int quarters : {0, 2, 4, 1, 3}) {
      for (const Depth depth : kDepths) {
        for (const Lag lag : kLags) {
          for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7}) {
            const Policy policy{.depth = depth,
                                .lag = lag,
                                .alternate = (flags & 1) == 0,
                                .free_memory = (flags & 2) != 0,
                                .overrun_quarters = quarters,
                                .idle_allowance = allowance,
                                .idle_before_f = (flags & 4) != 0};
            if (policy.idle_before_f && allowance < 0) continue;
            if (!use(policy)) return;
          }
        }
      }
    }
  }
}

}  // namespace troika::zb_auto

// Valid schedules that nobody would write: any edges, any stages per lane, B beside I and W, several updates.
// A pass that could start is drawn and appended to its lane until none is left, so the lanes can run.
#pragma once

#include <utility>
#include <vector>

#include "support/fuzz.h"
#include "troika/schedule/schedule.h"

namespace troika {

class RandomSchedule {
 public:
  explicit RandomSchedule(FuzzRandom& random) : random_(random) {
    const int stages = from_one_to(6);
    schedule_.num_micro_batches = from_one_to(5);
    schedule_.num_updates = random.below(2) == 0 ? 1 : from_one_to(schedule_.num_micro_batches);
    schedule_.lanes.resize(1 + random.below(4));
    schedule_.max_versions.assign(static_cast<size_t>(stages), 1);
    for (int stage = 0; stage < stages; ++stage) {
      schedule_.lane_of_stage.push_back(static_cast<int>(random.below(schedule_.lanes.size())));
      for (int later = stage + 1; later < stages; ++later) {
        if (random.below(8) < (later == stage + 1 ? 7 : 2)) schedule_.edges.push_back({stage, later});
      }
    }
    for (int i = 0; i < stages * schedule_.num_micro_batches; ++i)
      state_.push_back(State{random.below(2) == 0});
  }

  /// Of the passes alone.
  Schedule make() {
    for (std::vector<Action> ready = can_start(); !ready.empty(); ready = can_start()) {
      const Action action = random_.one_of(ready);
      schedule_.lanes[static_cast<size_t>(schedule_.lane_of_stage[static_cast<size_t>(action.stage)])]
          .push_back(action);
      State& state = of(action.stage, action.micro_batch);
      if (action.op == Op::forward) state.forward = true;
      if (action.op == Op::backward || action.op == Op::backward_input) state.input = true;
      if (action.op == Op::backward || action.op == Op::backward_weight) state.weight = true;
    }
    return std::move(schedule_);
  }

 private:
  struct State {
    bool whole = false;  // its backward is in one part
    bool forward = false, input = false, weight = false;
  };

  int from_one_to(int most) { return 1 + static_cast<int>(random_.below(static_cast<size_t>(most))); }

  State& of(int stage, int micro_batch) {
    return state_[static_cast<size_t>(stage * schedule_.num_micro_batches + micro_batch)];
  }

  // Dealt out in turn, so the first ones get one more.
  int first_of_update_of(int micro_batch) const {
    int first = 0;
    for (int update = 0;; ++update) {
      const int count = (schedule_.num_micro_batches - update - 1) / schedule_.num_updates + 1;
      if (micro_batch < first + count) return first;
      first += count;
    }
  }

  // Whether the gradients of all earlier updates are there.
  bool earlier_are_done(int stage, int micro_batch) {
    for (int earlier = 0; earlier < first_of_update_of(micro_batch); ++earlier) {
      if (!of(stage, earlier).weight) return false;
    }
    return true;
  }

  std::vector<Action> can_start() {
    std::vector<Action> ready;
    for (int stage = 0; stage < static_cast<int>(schedule_.lane_of_stage.size()); ++stage) {
      for (int micro_batch = 0; micro_batch < schedule_.num_micro_batches; ++micro_batch) {
        bool inputs = true, gradients = true;
        for (const Edge& edge : schedule_.edges) {
          if (edge.to == stage) inputs = inputs && of(edge.from, micro_batch).forward;
          if (edge.from == stage) gradients = gradients && of(edge.to, micro_batch).input;
        }
        const State& state = of(stage, micro_batch);
        const bool adds = earlier_are_done(stage, micro_batch);
        if (!state.forward && inputs) ready.push_back({Op::forward, stage, micro_batch});
        if (state.forward && !state.input && gradients && state.whole && adds) {
          ready.push_back({Op::backward, stage, micro_batch});
        }
        if (state.forward && !state.input && gradients && !state.whole) {
          ready.push_back({Op::backward_input, stage, micro_batch});
        }
        if (state.input && !state.weight && adds) ready.push_back({Op::backward_weight, stage, micro_batch});
      }
    }
    return ready;
  }

  FuzzRandom& random_;
  Schedule schedule_;
  std::vector<State> state_;  // per stage and micro-batch
};

}  // namespace troika

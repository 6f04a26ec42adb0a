// needs(): what must be finished before an action may start. The only place that knows; the validator, the
// simulator, the passes and the executor ask here. Pure; a Dependencies may be read from several threads.
#pragma once

#include <vector>

#include "troika/base/split.h"
#include "troika/schedule/schedule.h"

namespace troika {

/// What must be finished before `action` may start, in the finest terms: a forward needs the receive of its
/// input, the receive needs the send, the send the forward before. An action that a schedule doesn't state
/// (no messages yet, a backward in one part) stands for what it needs itself: ActionGraph resolves that.
/// Stage, micro-batch and peer of `action` must exist in `schedule`.
std::vector<Action> needs(const Action& action, const Schedule& schedule);

/// The same with the edges sorted by stage once, for whoever asks about many actions. Keeps a reference.
class Dependencies {
 public:
  explicit Dependencies(const Schedule& schedule);
  /// Replaces the contents of `out` by needs(action, schedule).
  void needs(const Action& action, std::vector<Action>& out) const;
  /// Calls visit(needed) for each, in the order of needs().
  template <typename Visit>
  void for_each(const Action& action, Visit&& visit) const;
  const std::vector<int>& sources_of(int stage) const { return sources_[static_cast<size_t>(stage)]; }
  const std::vector<int>& targets_of(int stage) const { return targets_[static_cast<size_t>(stage)]; }
  /// Whether the stage loads: data where no edge comes in, targets where none goes out.
  bool loads(int stage) const { return sources_of(stage).empty() || targets_of(stage).empty(); }

 private:
  bool same_lane(int stage, int other) const { return schedule_.lane_of(stage) == schedule_.lane_of(other); }

  const Schedule& schedule_;
  std::vector<std::vector<int>> sources_, targets_;  // per stage, ascending
};

template <typename Visit>
void Dependencies::for_each(const Action& action, Visit&& visit) const {
  const auto [op, stage, micro_batch, peer] = action;
  switch (op) {
    case Op::load:
      return;
    case Op::forward:
      if (loads(stage)) visit(Action{Op::load, stage, micro_batch});
      for (const int source : sources_of(stage)) {
        visit(same_lane(stage, source) ? Action{Op::forward, source, micro_batch}
                                       : Action{Op::receive_activation, stage, micro_batch, source});
      }
      return;
    case Op::recompute:
      visit(Action{Op::forward, stage, micro_batch});
      return;
    case Op::backward:
    case Op::backward_input:
      visit(Action{Op::recompute, stage, micro_batch});
      for (const int target : targets_of(stage)) {
        visit(same_lane(stage, target) ? Action{Op::backward_input, target, micro_batch}
                                       : Action{Op::receive_gradient, stage, micro_batch, target});
      }
      return;
    case Op::backward_weight:
      visit(Action{Op::backward_input, stage, micro_batch});
      return;
    case Op::reduce_gradients: {
      const Range group = share({0, schedule_.num_micro_batches}, schedule_.num_updates, micro_batch);
      for (int64_t each = group.begin; each < group.end; ++each) {
        visit(Action{Op::backward_weight, stage, static_cast<int>(each)});
      }
      return;
    }
    case Op::optimizer_step:
      visit(Action{Op::reduce_gradients, stage, micro_batch});
      return;
    case Op::send_activation:
      visit(Action{Op::forward, stage, micro_batch});
      return;
    case Op::receive_activation:
      visit(Action{Op::send_activation, peer, micro_batch, stage});
      return;
    case Op::send_gradient:
      visit(Action{Op::backward_input, stage, micro_batch});
      return;
    case Op::receive_gradient:
      visit(Action{Op::send_gradient, peer, micro_batch, stage});
      return;
  }
}

}  // namespace troika

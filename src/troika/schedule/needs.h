// needs(): what must be finished before an action may start. The only place that knows; the validator, the
// simulator, the passes and the executor ask here. Pure; a Dependencies may be read from several threads.
#pragma once

#include <vector>

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
  const std::vector<int>& sources_of(int stage) const { return sources_[static_cast<size_t>(stage)]; }
  const std::vector<int>& targets_of(int stage) const { return targets_[static_cast<size_t>(stage)]; }

 private:
  const Schedule& schedule_;
  std::vector<std::vector<int>> sources_, targets_;  // per stage, ascending
};

}  // namespace troika

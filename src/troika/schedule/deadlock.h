// Runs the lanes of a schedule without a clock: each does its next action as soon as what it waits for is
// finished. Lanes that end up waiting for each other are the fault. Linear in the number of actions. Pure;
// thread-safe.
#pragma once

#include <string>
#include <vector>

#include "troika/schedule/lane_messages.h"

namespace troika {

class LaneRun {
 public:
  /// Runs until nothing moves. `buffer_depth` as in ValidateOptions; `messages` may be null where none are
  /// stated. Keeps references.
  LaneRun(const ActionGraph& graph, const LaneMessages* messages, int lanes, int buffer_depth);

  bool finished() const;

  /// One lane that is stuck, the action that it can't start, and the one that it waits for.
  struct Wait {
    int lane = 0;
    int action = 0;
    int needed = 0;
  };
  /// A shortest circle of lanes that wait for each other, from its lowest lane on. `finished` must not hold.
  std::vector<Wait> shortest_circle() const;

 private:
  bool done(int number) const { return number < next_[static_cast<size_t>(graph_.lane(number))]; }
  int room_after(int number) const;
  bool advance(int lane, std::vector<int>& looked, int& blocker);
  std::vector<Wait> waits_of(int lane) const;

  const ActionGraph& graph_;
  const LaneMessages* messages_;
  int depth_;
  std::vector<int> next_;  // per lane: the number of the action that it does next
};

/// The smallest buffer depth with which the lanes run to their end, or kUnlimited if with none.
int smallest_depth(const ActionGraph& graph, const LaneMessages& messages, int lanes);

/// "lane 0 waits at step 3 (0RG0<1) for 1SG0>0; lane 1 ...".
std::string describe(const std::vector<LaneRun::Wait>& circle, const ActionGraph& graph);

}  // namespace troika

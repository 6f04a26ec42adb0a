// ActionGraph: the actions of a schedule numbered lane after lane, and for each the numbers of those that
// must be finished before it. Built once in linear time; what validates, simulates and passes of a whole
// schedule walk. Read-only after construction; keeps a reference to the schedule.
#pragma once

#include <span>
#include <vector>

#include "troika/schedule/needs.h"

namespace troika {

/// Finds actions by value in constant time.
class ActionIndex {
 public:
  static constexpr int kMostEdges = 64;  // per stage, on the average

  /// Whether the numbers in `schedule` fit its lanes, so that an index or a graph of it has the size of the
  /// schedule and not of a mistyped number: each (stage, micro-batch) needs a forward at least, each message
  /// a send, and there are at most kMostEdges times as many edges as stages. Also true: every stage stands in
  /// a lane, edges go from a lower stage to a higher one, vectors per stage have a value per stage (or,
  /// recomputed, none).
  static bool fits(const Schedule& schedule);

  /// Actions that name no stage, micro-batch, update or edge of the schedule are not in the index; of equal
  /// ones the first is. `fits` must hold.
  explicit ActionIndex(const Schedule& schedule);

  /// The action's number (lane after lane), or -1.
  int find(const Action& action) const;

  /// Whether the action's stage, micro-batch, update and edge are ones of the schedule.
  bool names_what_exists(const Action& action) const { return key(action) >= 0; }

 private:
  int64_t key(const Action& action) const;  // -1: names what the schedule doesn't have
  int64_t message_key(const Action& action) const;

  const Schedule& schedule_;
  int64_t stages_, micro_batches_;
  std::vector<std::vector<std::pair<int, int>>>
      edges_from_;  // per stage: (to, number of the edge), ascending
  std::vector<int> number_;
};

class ActionGraph {
 public:
  /// `ActionIndex::fits(schedule)` must hold. A needed action that is missing altogether is left out
  /// (validate() reports it).
  explicit ActionGraph(const Schedule& schedule);

  int size() const { return static_cast<int>(actions_.size()); }
  const Action& action(int number) const { return *actions_[static_cast<size_t>(number)]; }
  int lane(int number) const { return lane_[static_cast<size_t>(number)]; }
  /// Number of a lane's first action; `first_of(num_lanes)` is size(). Within a lane numbers are consecutive.
  int first_of(int lane) const { return first_of_lane_[static_cast<size_t>(lane)]; }
  /// needs(), resolved to what the schedule states; without the order of the lane itself.
  std::span<const int> needs(int number) const {
    const auto at = static_cast<size_t>(number);
    return {needs_.data() + begin_[at], needs_.data() + begin_[at + 1]};
  }
  const ActionIndex& index() const { return index_; }
  const Dependencies& dependencies() const { return dependencies_; }

 private:
  void resolve(const Action& needed);

  ActionIndex index_;
  Dependencies dependencies_;
  std::vector<const Action*> actions_;
  std::vector<int> lane_, first_of_lane_, needs_;
  std::vector<size_t> begin_;
};

}  // namespace troika

// The messages of each directed pair of lanes in the order of their lanes: a backend without tags pairs the
// k-th send with the k-th receive. Read-only after construction; thread-safe.
#pragma once

#include <vector>

#include "troika/schedule/graph.h"

namespace troika {

/// What the far end of a message does: of a send its receive, and the other way round.
Action far_end(const Action& message);

class LaneMessages {
 public:
  /// `schedule` is the one of the graph, and complete.
  LaneMessages(const Schedule& schedule, const ActionGraph& graph);

  /// Of a message, by its number in the graph: which pair of lanes it goes along, and its place among the
  /// sends, or the receives, of that pair, from 0.
  int place(int number) const { return place_[static_cast<size_t>(number)]; }
  /// The receive that is `back` before the one of this send in its pair's order, as a number; -1 if there is
  /// none.
  int receive_before(int send, int back) const;
  /// The send at the same place as this receive.
  int send_of(int receive) const;
  /// The most messages that one pair has.
  int most_of_a_pair() const { return most_; }

 private:
  size_t slot(int number) const;

  std::vector<int> pair_, place_;      // per action; -1: no message
  std::vector<size_t> begin_;          // per pair: its first slot
  std::vector<int> sends_, receives_;  // per slot: the number of the action
  int most_ = 0;
};

}  // namespace troika

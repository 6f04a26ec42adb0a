// VeeRun: carries a V-shaped schedule out in ticks, from ranks: a lane that is free starts the pass of the
// lowest rank among those whose turn it is, and weight parts fill gaps or make room. What comes out is an
// order per lane that can run and never holds more than the shape allows. One thread at a time.
#pragma once

#include <vector>

#include "troika/schedule/catalogue/vee_shape.h"

namespace troika::vee {

using Ranks = std::vector<Ticks>;  // per Shape::at; ascending in the micro-batch

/// Which lane waits for what. All ticks.
struct Rules {
  // A pass of a higher rank, by at most this much, goes first if it is ready and ends before the one of the
  // lowest rank could start, or `overlap` later. 0: none goes first.
  Ticks look_ahead = 0;
  Ticks overlap = 0;
  Ticks late_by_weight = 0;  // a weight part may fill a gap that is this much too short
  // ... and any gap, once the lane would have been idle longer than its allowance: the largest of this, its
  // own, and (balanced) the idle time of the idlest lane so far. Negative, none, not balanced: never.
  Ticks allowance = -1;
  const std::vector<Ticks>* lane_allowance = nullptr;
  bool balanced = false;
  bool before_forward = true, before_input_down = true;  // gaps before which that is done
  // Chunks kept free of stages that go down, so that one that comes up finds room. 0: the ranks see to it;
  // those that don't come to a standstill.
  int reserve = 1;
  const Ranks* not_before = nullptr;  // earliest starts
};

struct Outcome {
  bool complete = false;
  Ticks cost = kNever;   // the longest time from a lane's first start to its last end
  Ticks spans = kNever;  // their sum
  Ticks makespan = kNever;
  bool operator<(const Outcome& other) const;
};

class VeeRun {
 public:
  explicit VeeRun(const Shape& shape);

  Outcome run(const Ranks& ranks, const Rules& rules);

  /// Of the last run: starts per Shape::at, each lane's passes in order, and its idle time between them.
  const std::vector<Ticks>& starts() const { return start_; }
  const std::vector<std::vector<Pass>>& orders() const { return orders_; }
  std::vector<Ticks> idle() const;

 private:
  struct LaneState {
    std::array<int, kPasses> next = {};  // micro-batch
    int held = 0;
    Ticks free_at = 0;
    Ticks first_start = -1;
    Ticks idle = 0;
  };
  struct Choice {
    int pass = -1;              // what to start now, or
    Ticks look_again = kNever;  // when to look again
  };

  Choice choose(int lane, Ticks now, const Ranks& ranks, const Rules& rules) const;
  int ready_ahead(int lane, Ticks now, int first, const Ranks& ranks, const Rules& rules) const;
  bool has_room(const LaneState& lane, int pass, const Rules& rules) const;
  bool worth_a_delay(int lane, int before, Ticks gap_end, const Rules& rules) const;
  void start(int lane, int pass, Ticks now, const Rules& rules);
  void pass_on(int lane, int pass, int micro_batch, Ticks end, const Rules& rules);
  void set_wake(int lane, Ticks at);

  Shape shape_;
  std::vector<Ticks> ready_, start_;
  std::vector<LaneState> lanes_;
  std::vector<std::vector<Pass>> orders_;
  std::vector<Ticks> wake_;  // a tree of minima: lane l at size + l
  size_t leaves_ = 1;
  Ticks most_idle_ = 0;
};

}  // namespace troika::vee

// Orders of passes that several schedules of the catalogue are made of. Pure; thread-safe.
#pragma once

#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

/// `op` of one stage for micro-batches 0 .. count - 1.
Lane ascending(Op op, int stage, int count);

/// `warm_up` forwards (or all, if there are fewer), then a forward and a backward in turn, then the backwards
/// that are left. 0 is one micro-batch at a time, forwards.size() is all forwards first.
Lane forwards_and_backwards(const Lane& forwards, const Lane& backwards, int warm_up);

/// Adds the weight parts of a lane of forwards and input parts: the oldest one that waits, just after an
/// input part, as soon as more than `may_wait` wait (that input part's own is one of them); the rest at the
/// end.
Lane with_late_weights(const Lane& lane, int may_wait);

/// A schedule with one stage per lane: all of 1F1B's kin. `warm_up` of stage s is warm_ups[s].
Schedule one_stage_per_lane(int micro_batches, const std::vector<int>& warm_ups, Op backward = Op::backward);

/// p - 1 - s for the stages s of p: just enough for the first gradient to come back from the last stage.
std::vector<int> shortest_warm_ups(int stages);

}  // namespace troika

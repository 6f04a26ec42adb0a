// Passes: each takes a schedule and returns a new one. All expect a schedule that validate() accepts, without
// messages unless said otherwise, and keep it valid; what is stated already is not added again. Pure;
// thread-safe. Linear in the number of actions.
#pragma once

#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

/// Every B becomes I W; with messages too.
Schedule with_split_backward(const Schedule& schedule);

/// Every I becomes a B and its W is removed: the weight part is done together with the input part.
Schedule with_fused_backward(const Schedule& schedule);

/// Sends just after their producer, receives just before their consumer; a receive stands earlier only where
/// the order of the messages between two lanes, or a buffer of one message per directed pair of lanes, asks
/// for it.
Schedule with_messages(const Schedule& schedule);

/// The same schedule without its messages.
Schedule without_messages(const Schedule& schedule);

/// L just before the first forward that needs it, `ahead` passes earlier where there is room.
Schedule with_loads(const Schedule& schedule, int ahead = 0);

/// R just after the last backward (or W) of each update of each stage; with messages too.
Schedule with_reductions(const Schedule& schedule);

/// O just after the R, or the last backward, of each update of each stage, where it has none yet.
Schedule with_updates(const Schedule& schedule);

/// Every O moved to the end of its lane, after all other actions, in stage order: for updates that need
/// something of all stages first (the global norm, tied parameters). Only for num_updates = 1; asserts it.
/// With messages too.
Schedule with_updates_last(const Schedule& schedule);

/// C just before the backward (or I) of the given stages.
Schedule with_recompute(const Schedule& schedule, const std::vector<int>& stages);

/// `max_versions` counted from the lanes: forwards in flight and the newest one. For schedules with O in the
/// middle.
Schedule with_weight_versions(const Schedule& schedule);

/// Only the first `count` micro-batches. num_updates must be 1 or num_micro_batches.
Schedule with_micro_batches(const Schedule& schedule, int count);

/// The forwards alone, as Kind::forward: what evaluation runs.
Schedule forward_only(const Schedule& schedule);

/// What an executor runs: loads, messages, reductions and updates are all stated.
Schedule whole_step(const Schedule& schedule);

}  // namespace troika

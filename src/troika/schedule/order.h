// The later checks of validate(), of schedules in which nothing is missing: the order within a lane, of
// messages and updates, and what lanes hold. Pure; thread-safe.
#pragma once

#include "troika/schedule/faults.h"
#include "troika/schedule/lane_messages.h"

namespace troika {

/// Whatever an action needs of its own lane stands before it; updates are in order, and each applies its own
/// share of the micro-batches.
void check_lane_order(const Schedule& schedule, const ActionGraph& graph, FaultList& faults);

/// The k-th send from a lane to another is the k-th receive there.
void check_message_order(const ActionGraph& graph, const LaneMessages& messages, FaultList& faults);

/// No backward comes later than its stage keeps the weights of its forward.
void check_versions(const Schedule& schedule, FaultList& faults);

void check_memory(const Schedule& schedule, double limit, FaultList& faults);

}  // namespace troika

// The first checks of validate(): the numbers of a schedule fit together, its lanes hold what they may hold,
// each once, and nothing is missing. Pure; thread-safe.
#pragma once

#include "troika/schedule/faults.h"
#include "troika/schedule/graph.h"

namespace troika {

/// What ActionIndex::fits asks, said precisely. Costs as much as the schedule is long, whatever the numbers
/// in it.
void check_numbers(const Schedule& schedule, FaultList& faults);

/// Every action names what exists, may stand in its lane, and stands once.
void check_actions(const Schedule& schedule, const ActionGraph& graph, FaultList& faults);

/// Every forward and backward is there, and all of what is stated.
void check_complete(const Schedule& schedule, const ActionGraph& graph, FaultList& faults);

}  // namespace troika

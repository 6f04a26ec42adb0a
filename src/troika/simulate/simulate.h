// simulate(): when each action of a schedule would start and end. Each lane does its actions in order, one at
// a time; an action starts when its lane is free and what it needs (needs.h) is finished and, from another
// lane, has arrived. Messages occupy neither lane and don't queue. Exact and linear in the number of actions.
// Pure; thread-safe.
#pragma once

#include <vector>

#include "troika/schedule/liveness.h"
#include "troika/simulate/cost_model.h"
#include "troika/trace/trace.h"

namespace troika {

/// Spans of all actions, lane after lane, in lane order; `ranks` are lanes. Throws Error if the schedule
/// can't run (validate() says why) or the costs are of another number of stages.
Trace simulate(const Schedule& schedule, const CostModel& costs);

/// Adds `memory` to a trace of this schedule (simulated or measured, whole or broken off): bytes held by each
/// lane over time. Throws Error if its ranks aren't the lanes or it names what the schedule doesn't have.
Trace with_memory(const Schedule& schedule, const CostModel& costs, Trace trace);

/// The numbers of a simulated step; fields as in `troika schedule simulate --json`.
struct Summary {
  double makespan_s = 0;
  double cost_s = 0;                // the largest span of a lane: start of its first pass to end of its last
  double bubble_rate = 0;           // 1 - mean busy time of the lanes / cost
  double bubble_rate_makespan = 0;  // the same of the makespan
  std::vector<double> utilization;  // per lane: busy / makespan
  int64_t messages = 0;             // sends between lanes, both directions
  std::vector<LanePeaks> peaks;
};

Summary summarize(const Schedule& schedule, const Trace& trace);

}  // namespace troika

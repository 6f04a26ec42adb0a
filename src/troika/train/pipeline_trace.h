// What a pipeline's measured step says: its bubble, and the timeline that its own passes would have had with
// nothing lost between them. Threading: pure functions.
#pragma once

#include "troika/base/mesh.h"
#include "troika/schedule/schedule.h"
#include "troika/trace/trace.h"

namespace troika {

/// The lanes of the first data rank of a trace over all ranks, from the start of their first pass on.
Trace lanes_of_first_replica(const Trace& trace, const Mesh& mesh);

/// The part of the step's length in which a lane has no pass, on the average.
double measured_bubble(const Schedule& schedule, const Trace& lanes);

/// The step simulated from the passes' mean durations in `lanes`, stage by stage, without any cost of
/// messages.
Trace simulated_from(const Schedule& schedule, const Trace& lanes);

}  // namespace troika

// Schedules of passes made into what an executor runs. Pure; thread-safe.
#pragma once

#include "troika/schedule/schedule.h"

namespace troika {

/// With messages, reductions and updates. With clipping updates stand last: no weight is written before the
/// norm over all stages is known.
Schedule with_all_actions(const Schedule& passes, bool clips);

/// Of a data-parallel run: one stage that does each micro-batch's forward and backward in turn.
Schedule one_lane(int micro_batches, bool clips);

}  // namespace troika

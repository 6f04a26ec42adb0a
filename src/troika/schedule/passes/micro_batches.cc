#include <algorithm>

#include "troika/base/error.h"
#include "troika/schedule/passes.h"

namespace troika {

Schedule with_micro_batches(const Schedule& schedule, int count) {
  TROIKA_ASSERT(count >= 1 && count <= schedule.num_micro_batches,
                fmt::format("{} of {} micro-batches", count, schedule.num_micro_batches));
  const bool one_update = schedule.num_updates == 1;
  TROIKA_ASSERT(one_update || schedule.num_updates == schedule.num_micro_batches,
                fmt::format("{} updates of {} micro-batches: which would be left is not said",
                            schedule.num_updates, schedule.num_micro_batches));
  Schedule fewer = schedule;
  fewer.num_micro_batches = count;
  if (!one_update) fewer.num_updates = count;
  // The one update of a window is number 0; of one update per micro-batch the numbers are the same.
  for (Lane& lane : fewer.lanes) {
    std::erase_if(lane, [&](const Action& action) { return action.micro_batch >= count; });
  }
  return fewer;
}

Schedule forward_only(const Schedule& schedule) {
  Schedule forward = schedule;
  forward.kind = Kind::forward;
  forward.num_updates = 1;
  forward.max_versions.assign(schedule.lane_of_stage.size(), 1);
  forward.recomputed.clear();
  forward.stated = {};
  for (Lane& lane : forward.lanes) {
    std::erase_if(lane, [](const Action& action) { return action.op != Op::forward; });
  }
  return forward;
}

}  // namespace troika

#include <algorithm>

#include "troika/base/error.h"
#include "troika/schedule/passes.h"

namespace troika {

Schedule with_updates_last(const Schedule& schedule) {
  TROIKA_ASSERT(schedule.num_updates == 1,
                fmt::format("{} updates: only one can be last", schedule.num_updates));
  Schedule moved = schedule;
  for (Lane& lane : moved.lanes) {
    const auto updates = std::ranges::stable_partition(
        lane, [](const Action& action) { return action.op != Op::optimizer_step; });
    std::ranges::sort(updates, {}, &Action::stage);
  }
  return moved;
}

}  // namespace troika

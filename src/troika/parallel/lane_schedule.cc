#include "troika/parallel/lane_schedule.h"

#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"

namespace troika {

Schedule with_all_actions(const Schedule& passes, bool clips) {
  Schedule schedule = with_updates(with_reductions(with_messages(passes)));
  return clips ? with_updates_last(schedule) : schedule;
}

Schedule one_lane(int micro_batches, bool clips) {
  return with_all_actions(make_schedule("1f1b", {.lanes = 1, .micro_batches = micro_batches}), clips);
}

}  // namespace troika

#include "troika/schedule/catalogue/orders.h"

#include <algorithm>

#include "troika/base/error.h"

namespace troika {

Lane ascending(Op op, int stage, int count) {
  Lane lane;
  lane.reserve(static_cast<size_t>(count));
  for (int micro_batch = 0; micro_batch < count; ++micro_batch) lane.push_back({op, stage, micro_batch});
  return lane;
}

Lane forwards_and_backwards(const Lane& forwards, const Lane& backwards, int warm_up) {
  TROIKA_ASSERT(forwards.size() == backwards.size() && warm_up >= 0, "one backward per forward");
  const auto ahead = std::min(forwards.size(), static_cast<size_t>(warm_up));
  Lane lane(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  lane.reserve(2 * forwards.size());
  for (size_t at = 0; at < backwards.size(); ++at) {
    if (at + ahead < forwards.size()) lane.push_back(forwards[at + ahead]);
    lane.push_back(backwards[at]);
  }
  return lane;
}

Lane with_late_weights(const Lane& lane, int may_wait) {
  Lane whole, waiting;
  size_t done = 0;
  for (const Action& action : lane) {
    whole.push_back(action);
    if (action.op != Op::backward_input) continue;
    waiting.push_back({Op::backward_weight, action.stage, action.micro_batch});
    if (waiting.size() - done > static_cast<size_t>(may_wait)) whole.push_back(waiting[done++]);
  }
  whole.insert(whole.end(), waiting.begin() + static_cast<std::ptrdiff_t>(done), waiting.end());
  return whole;
}

Schedule one_stage_per_lane(int micro_batches, const std::vector<int>& warm_ups, Op backward) {
  const int stages = static_cast<int>(warm_ups.size());
  std::vector<int> lane_of_stage;
  for (int stage = 0; stage < stages; ++stage) lane_of_stage.push_back(stage);
  Schedule schedule = empty_schedule(Kind::train, micro_batches, std::move(lane_of_stage));
  for (int stage = 0; stage < stages; ++stage) {
    const auto at = static_cast<size_t>(stage);
    schedule.lanes[at] = forwards_and_backwards(ascending(Op::forward, stage, micro_batches),
                                                ascending(backward, stage, micro_batches), warm_ups[at]);
  }
  return schedule;
}

std::vector<int> shortest_warm_ups(int stages) {
  std::vector<int> warm_ups;
  for (int stage = 0; stage < stages; ++stage) warm_ups.push_back(stages - 1 - stage);
  return warm_ups;
}

}  // namespace troika

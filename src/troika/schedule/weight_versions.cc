#include "troika/schedule/weight_versions.h"

#include <algorithm>
#include <set>

namespace troika {
namespace {

const Lane& lane_of(const Schedule& schedule, int stage) {
  return schedule.lanes[static_cast<size_t>(schedule.lane_of(stage))];
}

}  // namespace

std::vector<int> versions_of_forwards(const Schedule& schedule, int stage, bool vertical_sync) {
  if (vertical_sync) stage = 0;
  std::vector<int> versions(static_cast<size_t>(schedule.num_micro_batches));
  int updates = 0;
  for (const Action& action : lane_of(schedule, stage)) {
    if (action.stage != stage) continue;
    if (action.op == Op::optimizer_step) ++updates;
    if (action.op == Op::forward) versions[static_cast<size_t>(action.micro_batch)] = updates;
  }
  return versions;
}

int versions_to_keep(const Schedule& schedule, int stage, const std::vector<int>& versions) {
  int newest = 0, most = 1;
  std::multiset<int> in_use;
  for (const Action& action : lane_of(schedule, stage)) {
    if (action.stage != stage) continue;
    if (action.op == Op::optimizer_step) ++newest;
    if (action.op == Op::forward) in_use.insert(versions[static_cast<size_t>(action.micro_batch)]);
    if (!in_use.empty()) most = std::max(most, newest - *in_use.begin() + 1);
    if (has_weight_part(action.op)) in_use.extract(versions[static_cast<size_t>(action.micro_batch)]);
  }
  return most;
}

}  // namespace troika

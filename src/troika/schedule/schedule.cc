#include "troika/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include "troika/base/split.h"

namespace troika {

size_t Schedule::num_actions() const {
  size_t count = 0;
  for (const Lane& lane : lanes) count += lane.size();
  return count;
}

int first_stage_of_lane(const Schedule& schedule, int lane) {
  return static_cast<int>(std::ranges::find(schedule.lane_of_stage, lane) - schedule.lane_of_stage.begin());
}

std::vector<int> stages_per_lane(const Schedule& schedule) {
  std::vector<int> count(schedule.lanes.size(), 0);
  for (const int lane : schedule.lane_of_stage) {
    if (lane >= 0 && lane < schedule.num_lanes()) ++count[static_cast<size_t>(lane)];
  }
  return count;
}

std::vector<int> updates_of_micro_batches(const Schedule& schedule) {
  std::vector<int> updates(static_cast<size_t>(schedule.num_micro_batches));
  for (int update = 0; update < schedule.num_updates; ++update) {
    const Range part = share({0, schedule.num_micro_batches}, schedule.num_updates, update);
    std::fill(updates.begin() + part.begin, updates.begin() + part.end, update);
  }
  return updates;
}

std::vector<Edge> chain_edges(int stages) {
  std::vector<Edge> edges;
  for (int stage = 0; stage + 1 < stages; ++stage) edges.push_back({stage, stage + 1});
  return edges;
}

Schedule empty_schedule(Kind kind, int num_micro_batches, std::vector<int> lane_of_stage) {
  Schedule schedule;
  schedule.kind = kind;
  schedule.num_micro_batches = num_micro_batches;
  schedule.edges = chain_edges(static_cast<int>(lane_of_stage.size()));
  schedule.max_versions.assign(lane_of_stage.size(), 1);
  const auto last = std::ranges::max_element(lane_of_stage);
  schedule.lanes.resize(last == lane_of_stage.end() ? 0 : static_cast<size_t>(*last) + 1);
  schedule.lane_of_stage = std::move(lane_of_stage);
  return schedule;
}

}  // namespace troika

#include "troika/schedule/from_lanes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "troika/base/error.h"

namespace troika {
namespace {

void check_numbers(const Schedule& schedule, const PlaceOf& place_of) {
  const size_t actions = schedule.num_actions();
  for (size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    for (size_t step = 0; step < schedule.lanes[lane].size(); ++step) {
      const Action& action = schedule.lanes[lane][step];
      if (static_cast<size_t>(action.stage) >= actions) {
        fail(
            "{} \"{}\": there are {} actions in all, too few for a stage {}: expected some of every stage, "
            "from 0 on",
            place_of(lane, step), to_string(action), actions, action.stage);
      }
      if (action.micro_batch == std::numeric_limits<int>::max()) {
        fail("{} \"{}\": expected a smaller number of the micro-batch", place_of(lane, step),
             to_string(action));
      }
    }
  }
}

void number_updates(Schedule& schedule) {
  std::vector<int> reductions(schedule.lane_of_stage.size()), steps(schedule.lane_of_stage.size());
  for (Lane& lane : schedule.lanes) {
    for (Action& action : lane) {
      const auto stage = static_cast<size_t>(action.stage);
      if (action.op == Op::reduce_gradients) action.micro_batch = reductions[stage]++;
      if (action.op == Op::optimizer_step) action.micro_batch = steps[stage]++;
    }
  }
}

}  // namespace

Schedule schedule_from_lanes(std::vector<Lane> lanes, const PlaceOf& place_of) {
  Schedule schedule;
  schedule.lanes = std::move(lanes);
  check_numbers(schedule, place_of);
  for (size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    for (const Action& action : schedule.lanes[lane]) {
      const auto stage = static_cast<size_t>(action.stage);
      if (stage >= schedule.lane_of_stage.size()) schedule.lane_of_stage.resize(stage + 1, -1);
      if (schedule.lane_of_stage[stage] < 0) schedule.lane_of_stage[stage] = static_cast<int>(lane);
      if (!is_whole_stage(action.op)) {
        schedule.num_micro_batches = std::max(schedule.num_micro_batches, action.micro_batch + 1);
      }
    }
  }
  number_updates(schedule);
  schedule.num_updates = updates_in(schedule.lanes);
  schedule.edges = chain_edges(schedule.num_stages());
  schedule.max_versions.assign(schedule.lane_of_stage.size(), 1);
  schedule.recomputed = recomputed_in(schedule.lanes, schedule.lane_of_stage.size());
  schedule.stated = stated_in(schedule.lanes);
  return schedule;
}

Stated stated_in(const std::vector<Lane>& lanes) {
  Stated stated;
  for (const Lane& lane : lanes) {
    for (const Action& action : lane) {
      stated.loads |= action.op == Op::load;
      stated.messages |= is_message(action.op);
      stated.reductions |= action.op == Op::reduce_gradients;
      stated.updates |= action.op == Op::optimizer_step;
    }
  }
  return stated;
}

std::vector<bool> recomputed_in(const std::vector<Lane>& lanes, size_t stages) {
  std::vector<bool> recomputed;
  for (const Lane& lane : lanes) {
    for (const Action& action : lane) {
      if (action.op != Op::recompute) continue;
      recomputed.resize(stages);
      recomputed[static_cast<size_t>(action.stage)] = true;
    }
  }
  return recomputed;
}

int updates_in(const std::vector<Lane>& lanes) {
  int updates = 1;
  for (const Lane& lane : lanes) {
    for (const Action& action : lane) {
      if (is_whole_stage(action.op)) updates = std::max(updates, action.micro_batch + 1);
    }
  }
  return updates;
}

}  // namespace troika

#include "troika/schedule/liveness.h"

#include <algorithm>

#include "troika/base/error.h"
#include "troika/schedule/graph.h"

namespace troika {
namespace {

// A limit that somebody typed with a few digits, or computed, still lets through what equals it.
constexpr double kRounding = 1e-6;

// What one lane holds, counted in stages' micro-batches, so that sums are exact.
struct Held {
  int64_t activations = 0, weight_pending = 0;

  // While it runs an action holds what it takes and what it makes.
  void start(Op op) {
    if (op == Op::forward) ++activations;
  }
  void end(Op op, Kind kind) {
    if (has_input_part(op)) --activations;
    if (op == Op::backward_input) ++weight_pending;
    if (op == Op::backward_weight) --weight_pending;
    if (op == Op::forward && kind == Kind::forward) --activations;  // nobody comes back for it
  }
  int64_t sum() const { return activations + weight_pending; }
};

double stages_of_lane(const Schedule& schedule, int lane) {
  return static_cast<double>(std::max<int64_t>(1, std::ranges::count(schedule.lane_of_stage, lane)));
}

LanePeaks peaks_of(const Lane& lane, Kind kind, double stages) {
  Held now, most;
  int64_t most_at_once = 0;
  const auto look = [&] {
    most.activations = std::max(most.activations, now.activations);
    most.weight_pending = std::max(most.weight_pending, now.weight_pending);
    most_at_once = std::max(most_at_once, now.sum());
  };
  for (const Action& action : lane) {
    now.start(action.op);
    look();
    now.end(action.op, kind);
    look();
  }
  return {static_cast<double>(most.activations) / stages, static_cast<double>(most.weight_pending) / stages,
          static_cast<double>(most_at_once) / stages};
}

}  // namespace

std::vector<LanePeaks> lane_peaks(const Schedule& schedule) {
  const std::vector<int> stages = stages_per_lane(schedule);
  std::vector<LanePeaks> peaks;
  for (size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    peaks.push_back(peaks_of(schedule.lanes[lane], schedule.kind, std::max(1, stages[lane])));
  }
  return peaks;
}

double most_held(const std::vector<LanePeaks>& peaks) {
  double most = 0;
  for (const LanePeaks& lane : peaks) most = std::max(most, lane.held);
  return most;
}

int first_step_above(const Schedule& schedule, int lane, double limit) {
  const double most = limit * stages_of_lane(schedule, lane) + kRounding;
  Held now;
  int step = 0;
  for (const Action& action : schedule.lanes[static_cast<size_t>(lane)]) {
    now.start(action.op);
    if (static_cast<double>(now.sum()) > most) return step;
    now.end(action.op, schedule.kind);
    ++step;
  }
  return -1;
}

std::vector<int> versions_held(const Schedule& schedule) {
  const auto stages = static_cast<size_t>(schedule.num_stages());
  std::vector<int> most(stages, 1);
  const auto is_update = [](const Action& action) { return action.op == Op::optimizer_step; };
  const bool updates = std::ranges::any_of(
      schedule.lanes, [&](const Lane& lane) { return std::ranges::any_of(lane, is_update); });
  if (!updates) return most;
  TROIKA_ASSERT(ActionIndex::fits(schedule), "the schedule must be checked first");

  struct Stage {
    int held = 1;
    std::vector<int> in_flight = {0};  // forwards in flight of each version; the last is the newest
  };
  std::vector<Stage> of_stage(stages);
  const auto micro_batches = static_cast<size_t>(schedule.num_micro_batches);
  std::vector<int> version_of(stages * micro_batches, 0);
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      const auto at = static_cast<size_t>(action.stage);
      if (action.stage < 0 || at >= stages) continue;
      auto& [held, in_flight] = of_stage[at];
      if (action.op == Op::optimizer_step) {
        held += in_flight.back() > 0;  // else the old newest one is overwritten in place
        in_flight.push_back(0);
        most[at] = std::max(most[at], held);
        continue;
      }
      const auto micro_batch = static_cast<size_t>(action.micro_batch);
      if (action.micro_batch < 0 || micro_batch >= micro_batches) continue;
      int& version = version_of[at * micro_batches + micro_batch];
      if (action.op == Op::forward) {
        version = static_cast<int>(in_flight.size()) - 1;
        ++in_flight.back();
      } else if (has_weight_part(action.op)) {
        int& left = in_flight[static_cast<size_t>(version)];
        const bool newest = &left == &in_flight.back();
        if (--left == 0 && !newest) --held;
      }
    }
  }
  return most;
}

}  // namespace troika

// Schedule: one training step (or window of steps) as data: what each lane does, in order. Made by the
// catalogue (catalogue.h) or read from a file (schedule_text.h), changed by passes (passes.h) that return a
// new value, proved by validate(), timed by simulate(), run by the executor. A value, made from integers
// alone: it knows no time, no model and no rank. Every rank holds all lanes.
#pragma once

#include <vector>

#include "troika/schedule/action.h"

namespace troika {

using Lane = std::vector<Action>;  // what one pipeline coordinate does, in order

/// An activation goes from a stage to a later one, and its gradient back.
struct Edge {
  int from = 0;
  int to = 0;
  auto operator<=>(const Edge&) const = default;
};

enum class Kind { train, forward };

/// Which of the optional kinds of action the lanes state. What is stated must be complete; what is not is
/// implied: data is there, messages arrive, gradients are reduced and applied after the last backward.
struct Stated {
  bool loads = false;       // L, of every stage without in-edges (data) and without out-edges (targets)
  bool messages = false;    // SF RF SG RG, along every edge between two lanes
  bool reductions = false;  // R
  bool updates = false;     // O
  bool operator==(const Stated&) const = default;
};

struct Schedule {
  Kind kind = Kind::train;
  int num_micro_batches = 0;
  // Optimizer steps of each stage in the window; the k-th applies the gradients of share k of the
  // micro-batches (base/split.h). 1 in a synchronous schedule.
  int num_updates = 1;
  std::vector<int> lane_of_stage;
  std::vector<Edge> edges;        // ascending, each once, from < to
  std::vector<int> max_versions;  // of weights held at once, per stage: 1 unless asynchronous
  std::vector<bool> recomputed;   // per stage, or empty: keeps only its input, a C comes before each backward
  Stated stated;
  std::vector<Lane> lanes;

  int num_lanes() const { return static_cast<int>(lanes.size()); }
  int num_stages() const { return static_cast<int>(lane_of_stage.size()); }
  int lane_of(int stage) const { return lane_of_stage[static_cast<size_t>(stage)]; }
  bool crosses_lanes(const Edge& edge) const { return lane_of(edge.from) != lane_of(edge.to); }
  bool is_recomputed(int stage) const {
    return !recomputed.empty() && recomputed[static_cast<size_t>(stage)];
  }
  size_t num_actions() const;
  bool operator==(const Schedule&) const = default;
};

/// The first stage that stands in a lane, which has one.
int first_stage_of_lane(const Schedule& schedule, int lane);

/// How many stages stand in each lane.
std::vector<int> stages_per_lane(const Schedule& schedule);

/// Of each micro-batch: the update that applies its gradients.
std::vector<int> updates_of_micro_batches(const Schedule& schedule);

/// s -> s+1.
std::vector<Edge> chain_edges(int stages);

/// A schedule whose lanes are still empty: `lane_of_stage.size()` stages in a chain, one version of weights
/// each.
Schedule empty_schedule(Kind kind, int num_micro_batches, std::vector<int> lane_of_stage);

}  // namespace troika

// Where a chain of layers is cut into stages. Knows numbers only, no model. Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/base/split.h"

namespace troika {

/// What one layer costs.
struct LayerCost {
  std::string name;
  double work = 0;        // seconds of forward and backward, or parameters: what is to be balanced
  double bytes = 0;       // weights, gradients, optimizer state: held by its stage
  double held_bytes = 0;  // saved for backward by one micro-batch
};

struct PartitionRequest {
  int stages = 1;
  /// The most bytes of each stage; empty: any. `held` of a stage counts `micro_batches_held` times.
  std::vector<double> memory_limit = {};
  std::vector<double> micro_batches_held = {};  // by stage: the schedule's peak; empty: 1 each
};

struct Partition {
  std::vector<int64_t> starts;  // the first layer of each stage
  double largest_work = 0;      // of a stage: what the pipeline's pace is
};

/// The partition into contiguous stages, none empty, whose largest work is the smallest possible, of those
/// that keep within memory; of equal ones the one whose later stages are longest, the last one first. Exact
/// (dynamic programming, O(layers^2 x stages)). Throws UsageError with the arithmetic for fewer layers than
/// stages, for a cost that isn't finite or is negative, naming the layer, and for a memory limit that no
/// partition keeps: of the one that misses it by the fewest bytes, the stage and layer that need most.
Partition partition(const std::vector<LayerCost>& layers, const PartitionRequest& request);

/// The layers of stage `stage` of a partition of `layers` layers.
inline Range layers_of_stage(const std::vector<int64_t>& starts, size_t stage, size_t layers) {
  return {starts[stage], stage + 1 < starts.size() ? starts[stage + 1] : static_cast<int64_t>(layers)};
}

/// Cuts given by hand: names of the layers that begin stages 1, 2, ...; stage 0 is added. Throws UsageError
/// naming the nearest layer for one that doesn't exist, for names out of order or repeated, for the first
/// layer, and for a name that two layers have.
std::vector<int64_t> cuts_by_name(const std::vector<std::string>& layers,
                                  const std::vector<std::string>& cuts);

/// The table for people: each stage with its layers, work (in `unit`) and its share, memory, and what a
/// micro-batch holds, if that is known; the sums; and the pace, largest work x stages / sum, which is 1 where
/// all are equal.
std::string partition_table(const std::vector<LayerCost>& layers, const std::vector<int64_t>& starts,
                            const std::string& unit);

}  // namespace troika

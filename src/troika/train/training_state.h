// Where a training run stands, beside its tensors: what a checkpoint says in its metadata. Values;
// thread-safe as such.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "troika/train/checkpoint.h"
#include "troika/train/workload.h"

namespace troika {

struct TrainingState {
  int64_t step = 0;       // updates done
  double epoch_loss = 0;  // sum over the samples of the epoch under way
  double epoch_weight = 0;
  double last_epoch_loss = std::numeric_limits<double>::quiet_NaN();  // mean of the last whole epoch
  double best_validation = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;  // whose weights had it; 0: none yet
  int64_t epochs_without_better = 0;
  double seconds = 0;  // spent so far, over all parts of the run
  bool operator==(const TrainingState&) const = default;
};

/// Metadata for the checkpoint of `work` at `state`.
std::map<std::string, std::string> to_metadata(const Workload& work, const TrainingState& state);

/// Reads it back. Throws Error naming what doesn't fit `work`: another dataset, other features, a damaged
/// field.
TrainingState from_metadata(const Workload& work, const Checkpoint& checkpoint, const Path& path);

/// Throws UsageError naming every key in which the recipe of a run and the one to go on with differ, other
/// than those that may change: how long, how often, how large the steps are, what is reported, and everything
/// of [parallel].
void require_same_run(const Recipe& run, const Recipe& now, const Path& run_recipe);

}  // namespace troika

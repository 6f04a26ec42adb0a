// StageMeters: the most bytes of tensors that each stage of a rank holds in its training steps: weights,
// gradients, optimizer state and what its passes keep; the rank's own inputs count for its first stage. What
// evaluations take is left out. Internal to train. Threading: belongs to its rank's thread; gathered() is
// collective.
#pragma once

#include <vector>

#include "troika/comm/communicator.h"
#include "troika/parallel/memory_meter.h"
#include "troika/train/workload.h"

namespace troika::internal {

class StageMeters {
 public:
  StageMeters(const Workload& work, int rank);

  /// The replica's own, with these meters; they outlive it.
  ReplicaOptions options(const Workload& work) const;
  /// Of this rank's stages.
  int first_stage() const { return first_; }
  const MemoryMeter* of_inputs() const { return &meters_[static_cast<size_t>(first_)]; }

  void begin_step();
  void end_step();

  /// By stage of the model, the most over the ranks that have it; the same on every rank.
  std::vector<int64_t> gathered(Communicator& communicator) const;

 private:
  std::vector<MemoryMeter> meters_;  // by stage; those of other lanes stay at 0
  std::vector<int64_t> most_;
  int first_ = 0;
};

}  // namespace troika::internal

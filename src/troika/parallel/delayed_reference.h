// DelayedReference: what a run of an asynchronous schedule must equal bit for bit. A plain serial program of
// the same delayed updates: the gradient of a step is taken at the weights that each stage had some updates
// ago, and applied to the newest ones (semantics.md, "Asynchronous schedules"). Threading: as
// MicroBatchedReference.
#pragma once

#include <deque>

#include "troika/parallel/micro_batched_reference.h"

namespace troika {

/// How many updates a stage lags behind at a step (from 0) of a window.
using Lag = std::function<int64_t(int64_t stage, int64_t step_of_window)>;

/// By the schedule's name, of `stages` stages: "pipedream": min(t, stages - 1 - stage); with vertical sync
/// min(t, stages - 1) for all of them; "pipedream-2bw": min(t, 1).
Lag lag_of(const std::string& schedule, int64_t stages, bool vertical_sync);

class DelayedReference {
 public:
  /// `starts` has the first layer of each stage.
  DelayedReference(const std::vector<Layer>& layers, const std::vector<int64_t>& starts,
                   const ReplicaOptions& options, int ranks, Lag lag, ModelSlices slices = {});

  /// As MicroBatchedReference::step; steps of a window count from 0, and the first one lags behind nothing.
  StepResult step(int64_t step_of_window, const std::vector<std::vector<Batch>>& pieces, const Loss& loss,
                  std::vector<at::Tensor>* mean_gradients = nullptr);

  MicroBatchedReference& newest() { return newest_; }

 private:
  MicroBatchedReference newest_;
  std::vector<int64_t> stage_of_parameter_;
  Lag lag_;
  std::deque<std::vector<at::Tensor>> history_;  // weights before each step of the window
};

}  // namespace troika

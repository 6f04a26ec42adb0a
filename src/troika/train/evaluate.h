// Evaluation over all ranks: loss and metrics of some samples, with results that don't depend on the number
// of ranks. Threading: one Evaluator serves all rank threads; evaluate() is collective.
#pragma once

#include <functional>
#include <memory>

#include "troika/train/metrics.h"
#include "troika/train/workload.h"

namespace troika {

struct EvaluateOptions {
  /// Scores and classes that are kept for the area under the curve, over all ranks (4 bytes each); if there
  /// are more, it is left out.
  int64_t most_scores = 50'000'000;
  int64_t chunk = 0;  // samples computed at once; 0: chunk_samples()
};

class Evaluator {
 public:
  /// `rows` are the samples (with windows their first rows); `work` must outlive it.
  Evaluator(const Workload& work, const RowSet& rows, int readers, const EvaluateOptions& options = {});

  /// Called on every rank with the samples that all ranks have done.
  using OnProgress = std::function<void(int64_t done, int64_t total)>;

  /// Chunks of a fixed size are dealt whole to the ranks and their sums added in chunk order, in float64;
  /// scores go to the rank that ranks their class. Every rank returns the same bits. `round` must not fall
  /// from call to call. With a pipeline the ranks are those of the data axis, each lane does the same, and
  /// `reader` is the caller's own; -1: its rank.
  MetricSums evaluate(Communicator& communicator, Replica& replica, int64_t round,
                      const OnProgress& on_progress = {}, int reader = -1) const;

  const BatchSource& source() const { return *source_; }
  int64_t chunk() const { return chunk_; }

 private:
  const Workload& work_;
  std::unique_ptr<BatchSource> source_;
  int64_t chunk_;
  bool keeps_scores_ = false;
  bool too_many_scores_ = false;
};

/// A power of two that depends on the plan and the model alone, so that inputs, outputs and what the layers
/// hold of one chunk stay near 128 MiB.
int64_t chunk_samples(const Workload& work);
int64_t chunk_samples(const Recipe& recipe, const FeaturePlan& plan, const Dataset& dataset, LossKind loss);

}  // namespace troika

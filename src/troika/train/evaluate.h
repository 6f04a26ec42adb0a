// Evaluation over all ranks: loss and metrics of some rows, with results that don't depend on the number of
// ranks. Threading: one Evaluator serves all rank threads; evaluate() is collective.
#pragma once

#include <memory>

#include "troika/train/metrics.h"
#include "troika/train/workload.h"

namespace troika {

class Evaluator {
 public:
  /// `work` must outlive it.
  Evaluator(const Workload& work, const RowSet& rows, int readers);

  /// Chunks of a fixed size are dealt whole to the ranks and their sums added in chunk order, in float64.
  /// `round` must not fall from call to call.
  MetricSums evaluate(Communicator& communicator, Replica& replica, int64_t round) const;

  const BatchSource& source() const { return *source_; }

 private:
  const Workload& work_;
  std::unique_ptr<BatchSource> source_;
};

}  // namespace troika

// The loop a person writes with LibTorch alone: one module, torch::optim, every batch whole. The demo's
// yardstick. Threading: runs on the calling thread, with torch's intra-op threads.
#pragma once

#include "troika/train/metrics.h"
#include "troika/train/workload.h"

namespace troika {

struct PlainLoopReport {
  double samples_per_s = 0;  // after the first steps
  double train_loss = 0;     // mean over the last epoch
  Metrics test;
};

/// Trains work.recipe's epochs with the same batches as troika train would.
PlainLoopReport run_plain_loop(const Workload& work, int threads);

}  // namespace troika

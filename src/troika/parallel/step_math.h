// What a step computes beside the tensors: the loss of one piece, and the totals over ranks. The engine and
// its reference have it in common, so that they can only differ in how the ranks work together. Threading:
// pure functions.
#pragma once

#include <span>

#include "troika/parallel/gradient_sync.h"
#include "troika/parallel/replica.h"
#include "troika/parallel/step_context.h"

namespace troika {

/// Calls the user's loss and checks what it gives: one number, a finite weight of at least 0.
LossValue checked_loss(const Loss& loss, const Tensors& outputs, const Batch& batch);

/// Where a piece stands: `step` is the optimizer step under way, from 1; `log` gets the statistics of its
/// BatchNorm groups.
StepContext context_of(const ReplicaOptions& options, const Batch& batch, int64_t step, BatchNormLog* log);

struct Totals {
  double loss_sum = 0;
  double weight = 0;
  bool anyone_wants_mean = false;
  int first_bad_rank = -1;  // whose loss is not finite
};

/// Adds in rank order.
Totals total_of(std::span<const StepNumbers> ranks);

}  // namespace troika

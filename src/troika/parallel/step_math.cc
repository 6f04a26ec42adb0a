#include "troika/parallel/step_math.h"

#include <cmath>

#include "troika/base/error.h"

namespace troika {

LossValue checked_loss(const Loss& loss, const Tensors& outputs, const Batch& batch) {
  LossValue value = loss(outputs, batch);
  if (!value.sum.defined() || value.sum.numel() != 1) {
    fail_usage("the loss must give the sum over the samples, one number; it gives {}",
               value.sum.defined() ? fmt::format("{} numbers", value.sum.numel()) : "an undefined tensor");
  }
  if (!value.sum.requires_grad()) {
    fail_usage(
        "the loss does not depend on any parameter that requires grad: compute it from the model's outputs, "
        "without detach() or a no-grad guard");
  }
  if (!std::isfinite(value.weight) || value.weight < 0) {
    fail_usage("the loss gives the weight {}; it must be a finite number of at least 0", value.weight);
  }
  return value;
}

StepContext context_of(const ReplicaOptions& options, const Batch& batch, int64_t step, BatchNormLog* log) {
  return {.seed = options.seed,
          .step = step,
          .samples = {batch.first_sample, batch.first_sample + batch.samples},
          .batch_norm_group = options.batch_norm_group,
          .batch_norm = log};
}

Totals total_of(std::span<const StepNumbers> ranks) {
  Totals totals;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const StepNumbers& n = ranks[rank];
    totals.loss_sum += n.loss_sum;
    totals.weight += n.weight;
    totals.anyone_wants_mean |= n.wants_mean != 0;
    if (totals.first_bad_rank < 0 && !std::isfinite(n.loss_sum))
      totals.first_bad_rank = static_cast<int>(rank);
  }
  return totals;
}

}  // namespace troika

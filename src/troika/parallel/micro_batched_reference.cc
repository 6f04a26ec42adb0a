#include "troika/parallel/micro_batched_reference.h"

#include <ATen/core/grad_mode.h>

#include "troika/base/error.h"
#include "troika/parallel/gradient_sync.h"
#include "troika/parallel/step_math.h"

namespace troika {

MicroBatchedReference::MicroBatchedReference(const std::vector<Layer>& layers, const ReplicaOptions& options,
                                             int ranks)
    : options_(options),
      model_(layers, options.seed, options.dtype),
      buffers_(own_flat_buffers(model_, options.dtype)),
      parameters_(views_of(buffers_.weights, buffers_.layout)),
      optimizer_steps_(parameters_.size(), 0) {
  for (size_t i = 0; i < moment_names(options.optimizer).size(); ++i) {
    buffers_.moments.push_back(zero_flat(buffers_.layout, options.dtype));
  }
  for (int rank = 0; rank < ranks; ++rank) gradients_.push_back(zero_flat(buffers_.layout, options.dtype));
}

StepResult MicroBatchedReference::step(const std::vector<std::vector<Batch>>& pieces, const Loss& loss,
                                       at::Tensor* mean_gradients) {
  TROIKA_ASSERT(pieces.size() == gradients_.size(), fmt::format("pieces of {} ranks", pieces.size()));
  const c10::AutoGradMode with_gradients(true);
  std::vector<StepNumbers> numbers(pieces.size());
  std::vector<uint8_t> touched(parameters_.size(), 0);
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    // Left undefined, a gradient shows by being there that something touched its parameter.
    for (const NamedTensor& p : model_.parameters()) p.tensor.mutable_grad() = at::Tensor();
    for (const Batch& batch : pieces[rank]) {
      if (batch.samples == 0) continue;
      const LossValue value = checked_loss(loss, model_.forward(batch.inputs), batch);
      numbers[rank].loss_sum += value.sum.item<double>();
      numbers[rank].weight += value.weight;
      value.sum.backward();
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& gradient = model_.parameters()[i].tensor.grad();
      if (!gradient.defined()) continue;
      touched[i] = 1;
      // Added to zero, as the engine's is: that makes +0 of a -0.
      view_of(gradients_[rank], buffers_.layout.entries[i]).add_(gradient);
    }
  }
  const Totals totals = total_of(numbers);
  if (totals.first_bad_rank >= 0) fail("reference: the loss of rank {} is not finite", totals.first_bad_rank);
  if (mean_gradients != nullptr) *mean_gradients = zero_flat(buffers_.layout, options_.dtype);
  if (totals.weight == 0) {
    for (const at::Tensor& gradient : gradients_) gradient.zero_();
    return {};
  }
  for (size_t i = 0; i < touched.size(); ++i) optimizer_steps_[i] += touched[i];
  std::vector<void*> gradients;
  for (const at::Tensor& gradient : gradients_) gradients.push_back(gradient.data_ptr());
  const UpdateBuffers buffers =
      update_buffers(buffers_, gradients, mean_gradients != nullptr ? *mean_gradients : at::Tensor());
  for (const UpdateRun& run : update_runs(buffers_.layout, touched, optimizer_steps_, options_.optimizer)) {
    fused_update(buffers, options_.optimizer, totals.weight, run);
  }
  return {totals.loss_sum / totals.weight, totals.weight};
}

void MicroBatchedReference::set_weights(const std::vector<at::Tensor>& weights) {
  TROIKA_ASSERT(weights.size() == parameters_.size(), fmt::format("{} tensors", weights.size()));
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < weights.size(); ++i) parameters_[i].tensor.copy_(weights[i]);
}

}  // namespace troika

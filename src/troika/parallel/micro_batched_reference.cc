#include "troika/parallel/micro_batched_reference.h"

#include <ATen/core/grad_mode.h>

#include "troika/base/error.h"
#include "troika/parallel/bf16.h"
#include "troika/parallel/gradient_sync.h"
#include "troika/parallel/step_math.h"
#include "troika/parallel/tensor/slices.h"
#include "troika/parallel/wiring.h"

namespace troika {

MicroBatchedReference::MicroBatchedReference(const std::vector<Layer>& layers, const ReplicaOptions& options,
                                             int ranks, ModelSlices slices)
    : ranks_(static_cast<size_t>(ranks)),
      options_(options),
      axis_(slices.axis),
      model_(layers, options.seed, options.dtype, {}, {}, slices),
      statistics_(model_),
      buffers_(own_flat_buffers(model_, options.dtype)),
      parameters_(views_of(buffers_.weights, buffers_.layout)),
      optimizer_steps_(parameters_.size(), 0),
      clipped_together_{{0, std::ssize(parameters_)}} {
  wire(layers, {0});  // for what only the whole list shows
  model_.share_ties();
  for (size_t i = 0; i < moment_names(options.optimizer).size(); ++i) {
    buffers_.moments.push_back(zero_flat(buffers_.layout, options.dtype));
  }
}

Tensors MicroBatchedReference::forward(const Batch& batch) {
  const StepScope step(context_of(options_, batch, steps_ + 1, &statistics_));
  const Bf16Scope precision(options_.bf16);
  return without_bf16(model_.forward(batch.inputs));
}

StepResult MicroBatchedReference::step(const std::vector<std::vector<Batch>>& pieces, const Loss& loss,
                                       std::vector<at::Tensor>* mean_gradients,
                                       const std::vector<at::Tensor>* at_weights) {
  TROIKA_ASSERT(pieces.size() == ranks_, fmt::format("pieces of {} ranks", pieces.size()));
  const c10::AutoGradMode with_gradients(true);
  const at::Tensor newest = at_weights != nullptr ? buffers_.weights.clone() : at::Tensor();
  if (at_weights != nullptr) set_weights(*at_weights);
  std::vector<StepNumbers> numbers(pieces.size());
  const size_t count = parameters_.size();
  statistics_.clear();
  std::vector<at::Tensor> kept;                        // every rank's gradients
  std::vector<const void*> gradients(count * ranks_);  // as update_slice takes them
  std::vector<int64_t> touched(count);
  for (size_t rank = 0; rank < ranks_; ++rank) {
    drop_gradients(model_.parameters());
    for (const TiedUse& use : model_.tied()) use.tensor.mutable_grad().reset();
    for (const Batch& batch : pieces[rank]) {
      if (batch.samples == 0) continue;
      const LossValue value = checked_loss(loss, forward(batch), batch);
      numbers[rank].loss_sum += value.sum.item<double>();
      numbers[rank].weight += value.weight;
      value.sum.backward();
    }
    model_.add_tied_gradients();
    for (size_t i = 0; i < count; ++i) {
      gradients[i * ranks_ + rank] = gradient_of(model_.parameters()[i]);
      if (gradients[i * ranks_ + rank] != nullptr) touched[i] = 1;
      kept.push_back(model_.parameters()[i].tensor.grad());
    }
  }
  if (at_weights != nullptr) {
    const at::NoGradGuard no_grad;
    buffers_.weights.copy_(newest);
  }
  const Totals totals = total_of(numbers);
  if (totals.first_bad_rank >= 0) fail("reference: the loss of rank {} is not finite", totals.first_bad_rank);
  at::Tensor mean;
  if (mean_gradients != nullptr) {
    mean = zero_flat(buffers_.layout, options_.dtype);
    mean_gradients->clear();
    for (const NamedTensor& view : views_of(mean, buffers_.layout)) mean_gradients->push_back(view.tensor);
  }
  if (totals.weight == 0) return {};
  StepResult result{totals.loss_sum / totals.weight, totals.weight};
  std::vector<double> squares;
  if (options_.clip_norm > 0) {
    std::vector<double> blocks(static_cast<size_t>(count_norm_blocks(buffers_.layout)));
    add_norm_blocks(buffers_.layout, options_.dtype == at::kDouble, totals.weight, gradients,
                    {0, buffers_.layout.total}, blocks);
    squares = squares_of_parameters(buffers_.layout, blocks);
    if (axis_ != nullptr) add_squares_of_slices(model_.cuts(), *axis_, model_.parameters(), squares);
  }
  for (size_t i = 0; i < count; ++i) optimizer_steps_[i] += touched[i];
  for (const Range together : clipped_together_) {
    if (together.size() == 0) continue;
    const double scale = scale_of(together, squares, result);
    const Update update{options_.optimizer,        optimizer_steps_, totals.weight,
                        mean_gradients != nullptr, nullptr,          scale};
    update_slice(buffers_, update, gradients, mean,
                 {buffers_.layout.padded(static_cast<size_t>(together.begin)).begin,
                  buffers_.layout.padded(static_cast<size_t>(together.end) - 1).end});
  }
  statistics_.apply();
  ++steps_;
  return result;
}

double MicroBatchedReference::scale_of(Range parameters, std::span<const double> squares,
                                       StepResult& result) const {
  if (squares.empty()) return 1;
  const GradientNorm found =
      norm_of(squares.subspan(static_cast<size_t>(parameters.begin), static_cast<size_t>(parameters.size())));
  if (found.first_bad >= 0) {
    fail("reference: the gradient of parameter \"{}\" is not finite",
         parameters_[static_cast<size_t>(parameters.begin + found.first_bad)].name);
  }
  if (parameters.begin == 0) result.grad_norm = found.norm;
  return clip_scale(found.norm, options_.clip_norm);
}

void MicroBatchedReference::set_weights(const std::vector<at::Tensor>& weights) {
  TROIKA_ASSERT(weights.size() == parameters_.size(), fmt::format("{} tensors", weights.size()));
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < weights.size(); ++i) parameters_[i].tensor.copy_(weights[i]);
}

void MicroBatchedReference::set_others(const std::vector<at::Tensor>& others) {
  TROIKA_ASSERT(others.size() == model_.others().size(), fmt::format("{} tensors", others.size()));
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < others.size(); ++i) model_.others()[i].tensor.detach().copy_(others[i]);
}

}  // namespace troika

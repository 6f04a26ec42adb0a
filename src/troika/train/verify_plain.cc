#include "troika/train/verify_plain.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "troika/base/error.h"
#include "troika/parallel/step_math.h"
#include "troika/train/verify_pieces.h"

namespace troika {
namespace {

PlainOptimizer clipping_optimizer(const ReplicaOptions& options) {
  PlainOptimizer out = plain_optimizer(options.optimizer);
  out.clip_norm = options.clip_norm;
  return out;
}

}  // namespace

PlainReference::PlainReference(const VerifyWork& work, at::ScalarType dtype)
    : work_(work),
      dtype_(dtype),
      model_(work.layers, work.options.seed, dtype),
      run_(tensors_of(model_.parameters()), clipping_optimizer(work.options)) {
  for (const NamedTensor& named : model_.parameters()) names_.push_back(named.name);
}

void PlainReference::set_buffers(const std::vector<at::Tensor>& buffers) {
  const at::NoGradGuard no_grad;
  TROIKA_ASSERT(buffers.size() == model_.others().size(), fmt::format("{} buffers", buffers.size()));
  for (size_t i = 0; i < buffers.size(); ++i) model_.others()[i].tensor.detach().copy_(buffers[i]);
}

// The noise and the groups of BatchNorm are those of the batch's place in the run.
LossValue PlainReference::loss_of(const Batch& batch) {
  const StepScope scope(context_of(work_.options, batch, optimizer_step_, nullptr));
  return work_.loss(model_.forward(batch.inputs), batch);
}

PlainReference::Step PlainReference::step(int64_t step, const std::vector<at::Tensor>& weights,
                                          const std::vector<at::Tensor>& buffers) {
  run_.set_weights(weights);
  set_buffers(buffers);
  optimizer_step_ = updates_ + 1;
  if (work_.learning_rate) run_.set_learning_rate(work_.learning_rate(step));
  const Batch batch = work_.batch(step, {0, work_.batch_size(step)}, dtype_);
  double weight = 0;
  Step result;
  result.loss = run_.backward([&] {
    const LossValue value = loss_of(batch);
    weight = value.weight;
    return weight > 0 ? value.sum / weight : value.sum * 0;
  });
  result.gradients = run_.gradients();
  if (weight == 0) {  // nothing to learn from: no step, and no statistics
    set_buffers(buffers);
    return result;
  }
  result.grad_norm = run_.update();
  ++updates_;
  return result;
}

std::vector<at::Tensor> PlainReference::buffers() const { return tensors_of(model_.others()); }

std::vector<std::string> PlainReference::buffer_names() const {
  std::vector<std::string> out;
  for (const NamedTensor& named : model_.others()) out.push_back(named.name);
  return out;
}

std::vector<at::Tensor> PlainReference::gradients_at(int64_t step, const std::vector<at::Tensor>& weights) {
  run_.set_weights(weights);
  const LossValue value = loss_of(work_.batch(step, {0, work_.batch_size(step)}, dtype_));
  return plain_gradients(value.sum / value.weight, run_.parameters());
}

std::vector<PieceValues> PlainReference::pieces_at(int64_t step, const std::vector<at::Tensor>& weights) {
  run_.set_weights(weights);
  std::vector<PieceValues> out(1 + names_.size());
  for (int rank = 0; rank < work_.ranks; ++rank) {
    for (PieceValues& values : out) {
      values.sums.emplace_back();
      values.weights.emplace_back();
    }
    for (const Batch& piece : pieces_of_rank(work_, step, rank, dtype_)) add_piece(piece, out);
  }
  return out;
}

void PlainReference::add_piece(const Batch& piece, std::vector<PieceValues>& out) {
  std::vector<at::Tensor> values{at::scalar_tensor(0.0, at::kDouble)};
  double weight = 0;
  if (piece.samples > 0) {
    const LossValue loss = loss_of(piece);
    weight = loss.weight;
    values[0] = loss.sum.detach();
    for (at::Tensor& g : plain_gradients(loss.sum, run_.parameters())) values.push_back(g);
  } else {
    for (const at::Tensor& p : run_.parameters()) values.push_back(at::zeros_like(p.detach()));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].sums.back().push_back(values[i]);
    out[i].weights.back().push_back(weight);
  }
}

}  // namespace troika

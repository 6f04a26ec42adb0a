#include "troika/train/verify_plain.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>

#include "troika/base/error.h"
#include "troika/parallel/noise_plan.h"
#include "troika/parallel/recompute.h"
#include "troika/parallel/step_math.h"
#include "troika/parallel/wiring.h"
#include "troika/train/verify_pieces.h"

namespace troika {
namespace {

PlainOptimizer clipping_optimizer(const ReplicaOptions& options) {
  PlainOptimizer out = plain_optimizer(options.optimizer);
  out.clip_norm = options.clip_norm;
  return out;
}

std::vector<at::Tensor> clones(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : tensors) out.push_back(tensor.detach().clone());
  return out;
}

}  // namespace

PlainReference::PlainReference(const VerifyWork& work, at::ScalarType dtype)
    : work_(work),
      dtype_(dtype),
      model_(work.layers, work.options.seed, dtype,
             [this, layer = size_t{0}](const std::vector<NamedTensor>& added) mutable {
               layer_of_.insert(layer_of_.end(), added.size(), layer++);
             }),
      run_(tensors_of(model_.parameters()), clipping_optimizer(work.options)) {
  for (const NamedTensor& named : model_.parameters()) names_.push_back(named.name);
  for (const TiedUse& use : model_.tied()) {
    use.tensor.set_data(use.tensor.detach().clone());  // numbers of its own, for mistakes in one stage
    const auto owner = std::ranges::find(names_, use.owner) - names_.begin();
    const auto layer = std::ranges::find_if(work.layers, [&](const Layer& l) {
      return std::ranges::any_of(
          l.ties, [&](const Tie& tie) { return full_name(l.name, tie.parameter) == use.name; });
    });
    uses_.push_back(
        {use.name, static_cast<size_t>(owner), static_cast<size_t>(layer - work.layers.begin()), use.tensor});
  }
}

void PlainReference::set_buffers(const std::vector<at::Tensor>& buffers) {
  const at::NoGradGuard no_grad;
  TROIKA_ASSERT(buffers.size() == model_.others().size(), fmt::format("{} buffers", buffers.size()));
  for (size_t i = 0; i < buffers.size(); ++i) model_.others()[i].tensor.detach().copy_(buffers[i]);
}

void PlainReference::set_weights(const std::vector<at::Tensor>& weights) {
  run_.set_weights(weights);
  const at::NoGradGuard no_grad;
  for (const Use& use : uses_) use.tensor.copy_(weights[use.owner]);
}

// Past autograd's version counter: a backward reads what is there now, as in the mistake.
void PlainReference::set_wrong(const std::vector<at::Tensor>* wrong, const std::vector<at::Tensor>& right,
                               Range layers) {
  const auto set = [&](const at::Tensor& tensor, size_t parameter, size_t layer) {
    const auto at = static_cast<int64_t>(layer);
    const bool is_meant = wrong != nullptr && at >= layers.begin && at < layers.end;
    tensor.variable_data().copy_((is_meant ? *wrong : right)[parameter]);
  };
  for (size_t i = 0; i < names_.size(); ++i) set(run_.parameters()[i], i, layer_of_[i]);
  for (const Use& use : uses_) set(use.tensor, use.owner, use.layer);
}

Tensors PlainReference::run_layers(const Tensors& inputs, const PlainMistake& mistake) {
  std::map<std::string, at::Tensor> skips;
  Tensors values = inputs;
  for (size_t i = 0; i < work_.layers.size(); ++i) {
    const Layer& layer = work_.layers[i];
    const bool is_deaf = mistake.deaf_layer == static_cast<int64_t>(i);
    for (at::Tensor& value : values) {
      if (is_deaf && mistake.lost_skip.empty() && value.defined()) value = value.detach();
    }
    for (const std::string& name : layer.gets) {
      const bool is_lost = is_deaf && mistake.lost_skip == name;
      values.push_back(is_lost ? skips.at(name).detach() : skips.at(name));
    }
    values = model_.forward_layer(i, values);
    for (auto name = layer.puts.rbegin(); name != layer.puts.rend(); ++name) {
      skips[*name] = values.back();
      values.pop_back();
    }
  }
  return values;
}

// The noise and the groups of BatchNorm are those of the batch's place in the run.
LossValue PlainReference::loss_of(const Batch& batch, const PlainMistake& mistake) {
  const NoRecompute keeping_everything;
  const StepScope scope(context_of(work_.options, batch, optimizer_step_, nullptr));
  const std::function<void(const Tensors&)> trial = [&](const Tensors& few) {
    const std::vector<at::Tensor> before = clones(buffers());
    try {
      run_layers(few, {});
    } catch (...) {
      set_buffers(before);
      throw;
    }
    set_buffers(before);
  };
  const ForwardScope noise(batch.inputs, trial);
  return work_.loss(run_layers(batch.inputs, mistake), batch);
}

std::vector<at::Tensor> PlainReference::leaves() const {
  std::vector<at::Tensor> out = run_.parameters();
  for (const Use& use : uses_) out.push_back(use.tensor);
  return out;
}

/// Of the parameters, with those of their uses.
std::vector<at::Tensor> PlainReference::gradients_of(const at::Tensor& loss) const {
  std::vector<at::Tensor> all = plain_gradients(loss, leaves());
  for (size_t u = 0; u < uses_.size(); ++u) {
    at::Tensor& sum = all[uses_[u].owner];
    sum = sum + all[names_.size() + u];
  }
  all.resize(names_.size());
  return all;
}

void PlainReference::add_uses() {
  const at::NoGradGuard no_grad;
  for (const Use& use : uses_) {
    at::Tensor& gradient = use.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    at::Tensor& sum = run_.parameters()[use.owner].mutable_grad();
    sum = sum.defined() ? sum + gradient : gradient;
    gradient.reset();
  }
}

PlainReference::Step PlainReference::step(int64_t step, const std::vector<at::Tensor>& weights,
                                          const std::vector<at::Tensor>& buffers) {
  set_weights(weights);
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
  add_uses();
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

PlainReference::Step PlainReference::with_mistake(int64_t step, const std::vector<at::Tensor>& weights,
                                                  const PlainMistake& mistake) {
  set_wrong(mistake.forward, weights, mistake.layers);
  const LossValue value = loss_of(work_.batch(step, {0, work_.batch_size(step)}, dtype_), mistake);
  set_wrong(mistake.backward, weights, mistake.layers);
  Step result;
  result.loss = value.sum.item<double>() / value.weight;
  result.gradients = gradients_of(value.sum / value.weight);
  set_wrong(nullptr, weights, {});
  return result;
}

std::vector<PlainReference::Part> PlainReference::tied_parts(int64_t step,
                                                             const std::vector<at::Tensor>& weights,
                                                             size_t parameter) {
  std::vector<Part> parts;
  if (std::ranges::count(uses_, parameter, &Use::owner) == 0) return parts;
  set_weights(weights);
  const LossValue value = loss_of(work_.batch(step, {0, work_.batch_size(step)}, dtype_));
  const std::vector<at::Tensor> all = plain_gradients(value.sum / value.weight, leaves());
  parts.push_back({names_[parameter], all[parameter]});
  for (size_t u = 0; u < uses_.size(); ++u) {
    if (uses_[u].owner == parameter) parts.push_back({uses_[u].name, all[names_.size() + u]});
  }
  return parts;
}

std::vector<PieceValues> PlainReference::pieces_at(int64_t step, const std::vector<at::Tensor>& weights,
                                                   const PlainMistake& mistake) {
  set_weights(weights);
  std::vector<PieceValues> out(1 + names_.size());
  for (int rank = 0; rank < work_.ranks; ++rank) {
    for (PieceValues& values : out) {
      values.sums.emplace_back();
      values.weights.emplace_back();
    }
    for (const Batch& piece : pieces_of_rank(work_, step, rank, dtype_)) add_piece(piece, mistake, out);
  }
  return out;
}

void PlainReference::add_piece(const Batch& piece, const PlainMistake& mistake,
                               std::vector<PieceValues>& out) {
  std::vector<at::Tensor> values{at::scalar_tensor(0.0, at::kDouble)};
  double weight = 0;
  if (piece.samples > 0) {
    const LossValue loss = loss_of(piece, mistake);
    weight = loss.weight;
    values[0] = loss.sum.detach();
    for (at::Tensor& g : gradients_of(loss.sum)) values.push_back(g);
  } else {
    for (const at::Tensor& p : run_.parameters()) values.push_back(at::zeros_like(p.detach()));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].sums.back().push_back(values[i]);
    out[i].weights.back().push_back(weight);
  }
}

}  // namespace troika

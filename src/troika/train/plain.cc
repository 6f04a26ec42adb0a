#include "troika/train/plain.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "troika/base/error.h"

namespace troika {
namespace {

/// Two groups of parameters, as people write it: matrices decay, biases and norms don't.
template <typename TorchOptimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> with_groups(const std::vector<at::Tensor>& parameters,
                                                     const Options& options) {
  std::vector<at::Tensor> matrices, others;
  for (const at::Tensor& p : parameters) (p.dim() >= 2 ? matrices : others).push_back(p);
  Options without = options;
  without.weight_decay(0);
  auto optimizer = std::make_unique<TorchOptimizer>(
      std::vector<torch::optim::OptimizerParamGroup>{{matrices}, {others}}, options);
  // Given to the constructor, a number that is torch's own default would count as not given.
  static_cast<Options&>(optimizer->param_groups()[1].options()) = without;
  return optimizer;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::vector<at::Tensor>& parameters,
                                                        const PlainOptimizer& o) {
  if (o.name == "sgd") {
    return with_groups<torch::optim::SGD>(parameters, torch::optim::SGDOptions(o.learning_rate)
                                                          .momentum(o.momentum)
                                                          .weight_decay(o.weight_decay)
                                                          .nesterov(o.nesterov));
  }
  if (o.name == "adam") {
    return with_groups<torch::optim::Adam>(parameters, torch::optim::AdamOptions(o.learning_rate)
                                                           .betas({o.beta1, o.beta2})
                                                           .eps(o.epsilon)
                                                           .weight_decay(o.weight_decay));
  }
  TROIKA_ASSERT(o.name == "adamw", o.name);
  return with_groups<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(o.learning_rate)
                                                          .betas({o.beta1, o.beta2})
                                                          .eps(o.epsilon)
                                                          .weight_decay(o.weight_decay));
}

}  // namespace

struct PlainRun::Optimizer {
  std::unique_ptr<torch::optim::Optimizer> torch;
  double clip_norm = 0;
};

PlainRun::PlainRun(std::vector<at::Tensor> parameters, const PlainOptimizer& optimizer)
    : parameters_(std::move(parameters)),
      optimizer_(std::make_unique<Optimizer>(
          Optimizer{make_optimizer(parameters_, optimizer), optimizer.clip_norm})) {}

PlainRun::~PlainRun() = default;

double PlainRun::step(const std::function<at::Tensor()>& mean_loss) {
  const double loss = backward(mean_loss);
  update();
  return loss;
}

double PlainRun::backward(const std::function<at::Tensor()>& mean_loss) {
  optimizer_->torch->zero_grad();
  const at::Tensor loss = mean_loss();
  loss.backward();
  return loss.item<double>();
}

double PlainRun::update() {
  double norm = 0;
  if (optimizer_->clip_norm > 0) norm = torch::nn::utils::clip_grad_norm_(parameters_, optimizer_->clip_norm);
  optimizer_->torch->step();
  return norm;
}

void PlainRun::set_learning_rate(double learning_rate) {
  for (auto& group : optimizer_->torch->param_groups()) group.options().set_lr(learning_rate);
}

std::vector<at::Tensor> PlainRun::gradients() const {
  std::vector<at::Tensor> out;
  for (const at::Tensor& p : parameters_) {
    out.push_back(p.grad().defined() ? p.grad().clone() : at::zeros_like(p.detach()));
  }
  return out;
}

void PlainRun::set_weights(const std::vector<at::Tensor>& weights) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].copy_(weights[i]);
}

std::vector<at::Tensor> plain_gradients(const at::Tensor& loss, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> out = torch::autograd::grad({loss}, parameters, {}, std::nullopt, false, true);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].defined()) out[i] = at::zeros_like(parameters[i].detach());
  }
  return out;
}

}  // namespace troika

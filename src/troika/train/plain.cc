#include "troika/train/plain.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "troika/base/error.h"

namespace troika {
namespace {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::vector<at::Tensor>& parameters,
                                                        const PlainOptimizer& o) {
  if (o.name == "sgd") {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(o.learning_rate)
                                                               .momentum(o.momentum)
                                                               .weight_decay(o.weight_decay)
                                                               .nesterov(o.nesterov));
  }
  if (o.name == "adam") {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(o.learning_rate)
                                                                .betas({o.beta1, o.beta2})
                                                                .eps(o.epsilon)
                                                                .weight_decay(o.weight_decay));
  }
  TROIKA_ASSERT(o.name == "adamw", o.name);
  return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(o.learning_rate)
                                                               .betas({o.beta1, o.beta2})
                                                               .eps(o.epsilon)
                                                               .weight_decay(o.weight_decay));
}

}  // namespace

struct PlainRun::Optimizer {
  std::unique_ptr<torch::optim::Optimizer> torch;
};

PlainRun::PlainRun(std::vector<at::Tensor> parameters, const PlainOptimizer& optimizer)
    : parameters_(std::move(parameters)),
      optimizer_(std::make_unique<Optimizer>(Optimizer{make_optimizer(parameters_, optimizer)})) {}

PlainRun::~PlainRun() = default;

double PlainRun::step(const std::function<at::Tensor()>& mean_loss) {
  optimizer_->torch->zero_grad();
  const at::Tensor loss = mean_loss();
  loss.backward();
  optimizer_->torch->step();
  return loss.item<double>();
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

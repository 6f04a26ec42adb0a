// torch's own optimizer for the parameters of a model, as people write it: matrices decay, biases and norms
// don't. Tests compare the engine's update with it.
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <vector>

#include "troika/parallel/optimizer.h"

namespace troika::test {
namespace internal {

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

}  // namespace internal

inline std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const std::vector<at::Tensor>& parameters,
                                                                const Optimizer& o) {
  switch (o.kind) {
    case Optimizer::Kind::sgd:
      return internal::with_groups<torch::optim::SGD>(parameters, torch::optim::SGDOptions(o.learning_rate)
                                                                      .momentum(o.momentum)
                                                                      .nesterov(o.nesterov)
                                                                      .weight_decay(o.weight_decay));
    case Optimizer::Kind::adam:
      return internal::with_groups<torch::optim::Adam>(parameters, torch::optim::AdamOptions(o.learning_rate)
                                                                       .weight_decay(o.weight_decay)
                                                                       .betas({o.beta1, o.beta2})
                                                                       .eps(o.epsilon));
    case Optimizer::Kind::adamw:
      return internal::with_groups<torch::optim::AdamW>(parameters,
                                                        torch::optim::AdamWOptions(o.learning_rate)
                                                            .weight_decay(o.weight_decay)
                                                            .betas({o.beta1, o.beta2})
                                                            .eps(o.epsilon));
  }
  return nullptr;
}

}  // namespace troika::test

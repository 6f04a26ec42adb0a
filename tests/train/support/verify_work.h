// Work for tests of verify: sines, whose sum is to be learned, and an engine that is told wrong layers.
#pragma once

#include <ATen/ops/arange.h>

#include "troika/train/fit.h"
#include "troika/train/verify.h"

namespace troika {

/// Ragged unless `samples` says otherwise; without a pipeline.
inline VerifyWork sine_work(std::vector<Layer> layers, const Mesh& mesh, int micro_batches, int64_t inputs,
                            int64_t samples) {
  VerifyWork work;
  work.layers = std::move(layers);
  work.loss = per_sample_loss([](const at::Tensor& o, const at::Tensor& t) { return (o - t).square(); });
  work.options.optimizer.kind = Optimizer::Kind::sgd;
  work.options.optimizer.learning_rate = 0.05;
  work.options.seed = 3;
  work.options.mesh = mesh;
  work.ranks = mesh.data;
  work.micro_batches = micro_batches;
  work.batch_size = [samples](int64_t) { return samples; };
  work.batch = [inputs, samples](int64_t step, Range part, at::ScalarType dtype) {
    const at::Tensor flat = at::arange(samples * inputs, at::kDouble) + static_cast<double>(step);
    const at::Tensor x = flat.mul(0.7).sin().view({samples, inputs}).narrow(0, part.begin, part.size());
    return Batch{{x.to(dtype)}, x.sum(1, true).to(dtype), part.size()};
  };
  return work;
}

/// The engine of the product, with other layers.
inline Engine with_layers(std::vector<Layer> layers) {
  return [layers](const VerifyWork& work, at::ScalarType dtype, const auto& on_step) {
    VerifyWork lying = work;
    lying.layers = layers;
    run_engine(lying, dtype, on_step);
  };
}

}  // namespace troika

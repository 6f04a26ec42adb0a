// Model: the constructed layers of one rank, in order, and their parameters by name.
// Threading: belongs to one rank's thread.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "troika/parallel/layer.h"
#include "troika/parallel/noise_plan.h"

namespace troika {

struct NamedTensor {
  std::string name;  // "<layer>.<parameter>", or "<parameter>" for a layer whose name is empty
  at::Tensor tensor;
};

class Model {
 public:
  /// Each factory runs under one process-wide lock after seeding torch's default generator from hash(seed,
  /// layer name), so the numbers don't depend on ranks or on the order of construction. Throws UsageError for
  /// two layers of one name. `on_layer` sees the trainable parameters that each layer adds, before the next
  /// layer is built: who moves them elsewhere never holds two models in memory.
  using OnLayer = std::function<void(const std::vector<NamedTensor>& parameters)>;
  Model(const std::vector<Layer>& layers, uint64_t seed, at::ScalarType dtype = at::kFloat,
        const OnLayer& on_layer = {});

  /// Throws Error naming the layer that failed. Within a StepScope noise is keyed by sample; the samples are
  /// dimension 0 of the inputs.
  using AfterLayer = std::function<void(size_t index)>;
  Tensors forward(const Tensors& inputs, const AfterLayer& after_layer = {}) const;
  Tensors forward_layer(size_t index, const Tensors& inputs) const;

  void train(bool on = true);

  /// Those that require grad, each once, in model order.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  /// Parameters that don't require grad, and buffers such as running statistics.
  const std::vector<NamedTensor>& others() const { return others_; }

  /// The name of the first layer that a run with more than one rank can't be exact with (BatchNorm), or "".
  std::string first_batch_norm() const;

  const std::vector<std::pair<std::string, LiveLayer>>& layers() const { return layers_; }

 private:
  void convert(torch::nn::Module& module, at::ScalarType dtype) const;
  std::vector<NamedTensor> list_parameters(const std::string& layer, const torch::nn::Module& module);
  void try_forward(const Tensors& inputs) const;

  std::vector<std::pair<std::string, LiveLayer>> layers_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> others_;
  mutable NoisePlan noise_;  // learnt as forward goes
};

}  // namespace troika

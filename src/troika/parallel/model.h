// Model: the constructed layers of one rank, in order, and their parameters by name.
// Threading: belongs to one rank's thread.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "troika/parallel/layer.h"

namespace troika {

struct NamedTensor {
  std::string name;  // "<layer>.<parameter>", or "<parameter>" for a layer whose name is empty
  at::Tensor tensor;
};

class Model {
 public:
  /// Each factory runs under one process-wide lock after seeding torch's default generator from hash(seed, layer
  /// name), so the numbers don't depend on ranks or on the order of construction. Throws UsageError for two layers of
  /// one name.
  Model(const std::vector<Layer>& layers, uint64_t seed, at::ScalarType dtype = at::kFloat);

  Tensors forward(const Tensors& inputs) const;
  void train(bool on = true);

  /// Those that require grad, each once, in model order.
  std::vector<NamedTensor> parameters() const;
  /// Parameters that don't require grad, and buffers such as running statistics.
  std::vector<NamedTensor> others() const;

  /// The name of the first layer that a run with more than one rank can't be exact with (BatchNorm), or "".
  std::string first_batch_norm() const;

  const std::vector<std::pair<std::string, LiveLayer>>& layers() const { return layers_; }

 private:
  std::vector<std::pair<std::string, LiveLayer>> layers_;
};

}  // namespace troika

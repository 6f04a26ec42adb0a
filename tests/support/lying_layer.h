// Layers of a pipeline that make one of its mistakes, within the computation: the engine runs as it is, with
// the numbers that the mistake gives. What they say otherwise is a torch::nn::Linear, with the same names and
// initial weights. Reaches no product code.
#pragma once

#include <functional>

#include "troika/parallel/layer.h"

namespace troika {

struct Lie {
  /// What the gradients of weight and bias, and of the input, are multiplied by; empty: 1. `first` is the
  /// place of the piece's first sample in the global batch.
  std::function<double(int64_t first)> own_gradient = {}, input_gradient = {};
  bool stale_forward = false;   // with the weights of the step before
  bool stale_backward = false;  // the input's gradient is by the weights of the step before
};

/// A linear layer of `in` and `out` features that lies within a step; elsewhere it is honest.
Layer lying_linear(std::string name, int64_t in, int64_t out, Lie lie);

}  // namespace troika

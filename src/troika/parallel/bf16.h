// Forward in bfloat16, as torch's autocast for the CPU does it: linear layers, matmul, convolutions, LSTM,
// the products of GRU and RNN, and attention round their operands and results to bfloat16 (at most 2^-9 of a
// number each) and add in float32. Softmax, norms, elementwise functions of float32, losses, weights and
// updates stay float32; float64 stays as it is. Threading: thread-local.
#pragma once

#include <c10/core/ScalarType.h>

#include "troika/parallel/layer.h"

namespace troika {

/// While there is one that is on, products run in bfloat16 on this thread. Without autocast's cache of cast
/// weights: raw writes to weights would go unseen by it.
class Bf16Scope {
 public:
  explicit Bf16Scope(bool on);
  Bf16Scope(const Bf16Scope&) = delete;
  Bf16Scope& operator=(const Bf16Scope&) = delete;
  ~Bf16Scope();

 private:
  bool on_;
  bool was_enabled_ = false, had_cache_ = false;
  c10::ScalarType type_ = c10::ScalarType::BFloat16;
};

/// Those in bfloat16 as float32, so that losses don't add in bfloat16; differentiable.
Tensors without_bf16(Tensors outputs);

}  // namespace troika

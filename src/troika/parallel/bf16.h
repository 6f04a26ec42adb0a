// Forward in bfloat16: weights, sums and updates stay float32; the operands of large products are rounded to
// bfloat16 (relative 2^-9 each) as torch's autocast for the CPU does. Threading: thread-local.
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

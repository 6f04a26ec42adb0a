#include "troika/parallel/bf16.h"

#include <ATen/autocast_mode.h>

namespace troika {

Bf16Scope::Bf16Scope(bool on) : on_(on) {
  if (!on_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(at::kCPU);
  had_cache_ = at::autocast::is_autocast_cache_enabled();
  type_ = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
}

Bf16Scope::~Bf16Scope() {
  if (!on_) return;
  at::autocast::set_autocast_dtype(at::kCPU, type_);
  at::autocast::set_autocast_cache_enabled(had_cache_);
  at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
}

Tensors without_bf16(Tensors outputs) {
  for (at::Tensor& output : outputs) {
    if (output.defined() && output.scalar_type() == at::kBFloat16) output = output.to(at::kFloat);
  }
  return outputs;
}

}  // namespace troika

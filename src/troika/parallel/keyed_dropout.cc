// Dropout of all kinds on the CPU, registered over torch's own operators, so that a user's model stays as it
// is: torch's modules and functions, recurrent layers and attention all come here. Within a StepScope the
// masks are keyed (noise_mask.h); elsewhere torch's own kernel runs. Arithmetic is torch's, on tensors that
// autograd sees, so gradients of any order follow.
#include <ATen/core/Tensor.h>
#include <ATen/ops/alpha_dropout_native.h>
#include <ATen/ops/dropout_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/feature_alpha_dropout_native.h>
#include <ATen/ops/feature_dropout_native.h>
#include <torch/library.h>

#include <bit>
#include <cmath>

#include "troika/parallel/noise_plan.h"
#include "troika/parallel/noise_tape.h"

namespace troika {
namespace {

bool is_keyed(const at::Tensor& input, double p, bool train) {
  if (!train || !(p > 0 && p < 1) || current_step() == nullptr || current_step()->samples.size() <= 0)
    return false;
  switch (input.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kBFloat16:
    case at::kHalf:
      return input.layout() == at::kStrided && input.numel() > 0;
    default:
      return false;
  }
}

template <typename T>
void draw_into(const at::Tensor& mask, const NoiseDraw& draw, double p, T keep) {
  draw_mask<T>(draw.key, draw.first_sample, draw.layout, p, keep, static_cast<T*>(mask.mutable_data_ptr()));
}

/// 0 with probability p, else `keep`; of the input's type.
at::Tensor keyed_mask(at::IntArrayRef sizes, const at::Tensor& input, double p, double keep) {
  const NoiseDraw draw = next_noise(sizes);
  const at::Tensor mask =
      at::empty(sizes, input.options().requires_grad(false), at::MemoryFormat::Contiguous);
  switch (input.scalar_type()) {
    case at::kDouble:
      draw_into<double>(mask, draw, p, keep);
      break;
    case at::kBFloat16:
      draw_into<uint16_t>(mask, draw, p, c10::BFloat16(static_cast<float>(keep)).x);
      break;
    case at::kHalf:
      draw_into<uint16_t>(mask, draw, p, c10::Half(static_cast<float>(keep)).x);
      break;
    default:
      draw_into<float>(mask, draw, p, static_cast<float>(keep));
  }
  return mask;
}

/// Whole features: one number per sample and channel, the same for all that follows.
std::vector<int64_t> feature_sizes(const at::Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "Feature dropout requires at least 2 dimensions in the input");
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[0] = input.size(0);
  sizes[1] = input.size(1);
  return sizes;
}

/// What is multiplied and what is added.
struct Noise {
  at::Tensor factor, shift;
};

// Dropped elements become the value that SELU saturates at, and mean and variance stay (arXiv:1706.02515).
Noise alpha_noise(at::IntArrayRef sizes, const at::Tensor& input, double p) {
  constexpr double kSaturation = 1.7580993408473766;
  const double a = 1 / std::sqrt((kSaturation * kSaturation * p + 1) * (1 - p));
  const at::Tensor mask = keyed_mask(sizes, input, p, 1);
  return {mask.mul(a), mask.sub(1).mul_(kSaturation * a).add_(kSaturation * a * p)};
}

/// What tells the samples apart, one number where one is drawn.
template <bool feature>
at::Tensor drawn_for(const at::Tensor& input) {
  return feature && input.dim() > 2 ? input.detach().flatten(2).sum(2).view(feature_sizes(input)) : input;
}

template <bool feature, bool alpha>
Noise draw(const at::Tensor& input, double p) {
  const std::vector<int64_t> sizes = feature ? feature_sizes(input) : input.sizes().vec();
  if constexpr (alpha) return alpha_noise(sizes, input, p);
  return {keyed_mask(sizes, input, p, 1 / (1 - p)), {}};
}

/// `torchs` is what runs outside of a step.
template <bool feature, bool alpha, auto torchs>
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  if (!is_keyed(input, p, train)) return torchs(input, p, train);
  if (in_noise_trial()) {
    note_trial(drawn_for<feature>(input));
    return input;
  }
  const Noise noise = draw<feature, alpha>(input, p);
  at::Tensor result = input.mul(noise.factor);
  return alpha ? result.add(noise.shift) : result;
}

template <bool feature, bool alpha, auto torchs>
at::Tensor& dropout_(at::Tensor& input, double p, bool train) {
  if (!is_keyed(input, p, train)) return torchs(input, p, train);
  if (in_noise_trial()) {
    note_trial(drawn_for<feature>(input));
    return input;
  }
  const Noise noise = draw<feature, alpha>(input, p);
  input.mul_(noise.factor);
  return alpha ? input.add_(noise.shift) : input;
}

TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  namespace torchs = at::native;
  library.impl("dropout", dropout<false, false, torchs::dropout>);
  library.impl("dropout_", dropout_<false, false, torchs::dropout_>);
  library.impl("feature_dropout", dropout<true, false, torchs::feature_dropout>);
  library.impl("feature_dropout_", dropout_<true, false, torchs::feature_dropout_>);
  library.impl("alpha_dropout", dropout<false, true, torchs::alpha_dropout>);
  library.impl("alpha_dropout_", dropout_<false, true, torchs::alpha_dropout_>);
  library.impl("feature_alpha_dropout", dropout<true, true, torchs::feature_alpha_dropout>);
  library.impl("feature_alpha_dropout_", dropout_<true, true, torchs::feature_alpha_dropout_>);
}

}  // namespace
}  // namespace troika

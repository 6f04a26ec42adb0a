// How far rounding in the gradients may move Adam's weights. Adam divides the gradient by its own size, so an
// element whose gradient is zero in truth (a bias that a softmax or a norm takes out again) moves by as much
// as the noise in it says: up to the learning rate. Such noise is no mistake of the update. Threading: a
// value.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "troika/parallel/optimizer.h"

namespace troika {

/// Kingma and Ba, "Adam" (arxiv.org/abs/1412.6980): an update is rate * m / (sqrt(v) + epsilon). With
/// gradients that differ by d, m differs by at most the same mean of |d|, sqrt(v) by at most the root of the
/// mean of d^2, and |m| is at most a few times sqrt(v).
class UpdateRounding {
 public:
  explicit UpdateRounding(const Optimizer& optimizer) : optimizer_(optimizer) {}

  /// After each step: both sides' mean gradients, already judged, and the factor that clipping gave them.
  /// Returns for each parameter the most that its elements may differ by (float64, its shape); undefined
  /// tensors for plain SGD, which makes no rounding larger.
  std::vector<at::Tensor> step(const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y,
                               double clipping, double learning_rate);

 private:
  Optimizer optimizer_;
  int64_t steps_ = 0;
  std::vector<at::Tensor> squares_, noise_, noise_squares_;  // running means, as Adam's
};

}  // namespace troika

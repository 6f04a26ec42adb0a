#include "troika/train/verify_rounding.h"

#include <ATen/ATen.h>

#include <cmath>

namespace troika {

std::vector<at::Tensor> UpdateRounding::step(const std::vector<at::Tensor>& x,
                                             const std::vector<at::Tensor>& y, double clipping,
                                             double learning_rate) {
  std::vector<at::Tensor> allowed(y.size());
  if (optimizer_.kind == Optimizer::Kind::sgd) return allowed;
  if (steps_++ == 0) {
    for (std::vector<at::Tensor>* means : {&squares_, &noise_, &noise_squares_}) {
      for (const at::Tensor& t : y) means->push_back(at::zeros(t.sizes(), at::kDouble));
    }
  }
  constexpr double kFew = 4;  // |m| / sqrt(v) is at most (1 - beta1) / sqrt(1 - beta2), 3.2 as usual
  const double first = 1 - std::pow(optimizer_.beta1, static_cast<double>(steps_));
  const double second = 1 - std::pow(optimizer_.beta2, static_cast<double>(steps_));
  for (size_t i = 0; i < y.size(); ++i) {
    const at::Tensor gradient = y[i].to(at::kDouble) * clipping;
    const at::Tensor noise = (x[i].to(at::kDouble) * clipping - gradient).abs();
    squares_[i].lerp_(gradient * gradient, 1 - optimizer_.beta2);
    noise_[i].lerp_(noise, 1 - optimizer_.beta1);
    noise_squares_[i].lerp_(noise * noise, 1 - optimizer_.beta2);
    const at::Tensor moved = noise_[i] / first + kFew * (noise_squares_[i] / second).sqrt();
    allowed[i] = learning_rate * moved / ((squares_[i] / second).sqrt() + optimizer_.epsilon);
  }
  return allowed;
}

}  // namespace troika

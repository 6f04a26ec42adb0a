// Two sides of a verified step, compared kind by kind. Threading: belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "troika/train/verify.h"

namespace troika {

/// The largest magnitude; 0 of nothing.
double largest(const at::Tensor& t);

/// Whether their difference is at most `tolerance` of the larger one.
bool close(const at::Tensor& x, const at::Tensor& y, double tolerance);

/// For what a cause predicts: far above rounding, far below any real mistake.
double cause_tolerance(at::ScalarType precision);

/// What a reference made of a step.
struct ExpectedStep {
  double loss = 0, grad_norm = 0;
  std::vector<at::Tensor> gradients, weights, buffers;
  std::vector<at::Tensor> allowed = {};  // differences of weights that aren't held against the engine
};

/// Compares one side's tensors with the other's, and keeps the first difference. What it counts and the
/// largest differences go to `result`.
class Comparison {
 public:
  /// All outlive it.
  Comparison(VerifyResult& result, double tolerance, const std::vector<std::string>& names,
             const std::vector<std::string>& buffer_names)
      : result_(result), tolerance_(tolerance), names_(names), buffer_names_(buffer_names) {}

  /// Every rank must start from the numbers that the seed gives.
  void initial_weights(const StepRecord& record, const std::vector<at::Tensor>& expected);
  void step(const StepRecord& record, const ExpectedStep& expected);

  bool found() const { return first_.has_value(); }
  std::optional<Difference>& first() { return first_; }

 private:
  void number(int64_t step, const std::string& what, double x, double y);
  /// `allowed`: differences of elements that aren't held against x; empty, or undefined: none.
  void tensors(int64_t step, const std::string& what, const std::vector<at::Tensor>& x,
               const std::vector<at::Tensor>& y, const std::vector<at::Tensor>& allowed = {});
  void judge(int64_t step, const std::string& what, const std::string& name, const at::Tensor& x,
             const at::Tensor& y, double scale, const at::Tensor& allowed = {});

  VerifyResult& result_;
  double tolerance_;
  const std::vector<std::string>&names_, &buffer_names_;
  std::optional<Difference> first_;
};

}  // namespace troika

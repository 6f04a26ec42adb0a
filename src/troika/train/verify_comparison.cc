#include "troika/train/verify_comparison.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"

namespace troika {
namespace {

double factor_of(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor y64 = y.to(at::kDouble);
  const double norm = (y64 * y64).sum().item<double>();
  return norm > 0 ? (x.to(at::kDouble) * y64).sum().item<double>() / norm : 0;
}

}  // namespace

double largest(const at::Tensor& t) { return t.numel() == 0 ? 0 : t.abs().max().item<double>(); }

bool close(const at::Tensor& x, const at::Tensor& y, double tolerance) {
  return largest(x.to(at::kDouble) - y.to(at::kDouble)) <= tolerance * std::max(largest(x), largest(y));
}

double cause_tolerance(at::ScalarType precision) { return precision == at::kDouble ? 1e-8 : 1e-4; }

void Comparison::initial_weights(const StepRecord& record, const std::vector<at::Tensor>& expected) {
  for (const auto& weights : record.weights_before) {
    tensors(0, "weights", weights, expected);
    if (!found()) continue;
    first_->likely_cause = "initial_weights";
    return;
  }
}

void Comparison::step(const StepRecord& record, const ExpectedStep& expected) {
  ++result_.losses;
  number(record.step, "loss", record.loss, expected.loss);
  tensors(record.step, "gradients", record.gradients, expected.gradients);
  number(record.step, "grad_norm", record.grad_norm, expected.grad_norm);
  for (const auto& weights : record.weights_after) {
    tensors(record.step, "weights", weights, expected.weights, expected.allowed);
  }
  for (const auto& buffers : record.buffers) tensors(record.step, "buffers", buffers, expected.buffers);
}

void Comparison::number(int64_t step, const std::string& what, double x, double y) {
  judge(step, what, "", at::scalar_tensor(x, at::kDouble), at::scalar_tensor(y, at::kDouble), std::abs(y));
}

void Comparison::tensors(int64_t step, const std::string& what, const std::vector<at::Tensor>& x,
                         const std::vector<at::Tensor>& y, const std::vector<at::Tensor>& allowed) {
  TROIKA_ASSERT(x.size() == y.size(), what);
  double scale = 0;
  for (const at::Tensor& t : y) scale = std::max(scale, largest(t));
  for (size_t i = 0; i < x.size(); ++i) {
    judge(step, what, (what == "buffers" ? buffer_names_ : names_)[i], x[i], y[i],
          std::max(largest(y[i]), 1e-3 * scale), allowed.empty() ? at::Tensor() : allowed[i]);
  }
  (what == "gradients" ? result_.gradients
   : what == "weights" ? result_.weights
                       : result_.buffers) += static_cast<int64_t>(x.size());
}

void Comparison::judge(int64_t step, const std::string& what, const std::string& name, const at::Tensor& x,
                       const at::Tensor& y, double scale, const at::Tensor& allowed) {
  if (x.numel() == 0) return;
  const at::Tensor differences = (x.to(at::kDouble) - y.to(at::kDouble)).abs();
  const double judged =
      allowed.defined() ? largest((differences - allowed).clamp_min(0)) : largest(differences);
  const double relative = scale > 0 ? judged / scale : judged;
  result_.max_abs_diff = std::max(result_.max_abs_diff, largest(differences));
  result_.max_rel_diff = std::max(result_.max_rel_diff, relative);
  const bool equal = relative <= tolerance_;  // false for NaN
  if (!equal && !first_) first_ = Difference{step, what, name, factor_of(x, y), "unknown"};
}

}  // namespace troika

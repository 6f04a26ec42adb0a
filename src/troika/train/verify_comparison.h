// Two sides of a verified step, compared kind by kind. Threading: belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "troika/train/verify.h"

namespace troika {

/// The largest magnitude; 0 of nothing.
double largest(const at::Tensor& t);

/// Compares one side's tensors with the other's, and keeps the first difference. What it counts and the
/// largest differences go to `result`.
class Comparison {
 public:
  /// All outlive it.
  Comparison(VerifyResult& result, double tolerance, const std::vector<std::string>& names,
             const std::vector<std::string>& buffer_names)
      : result_(result), tolerance_(tolerance), names_(names), buffer_names_(buffer_names) {}

  void loss(int64_t step, double x, double y);
  void number(int64_t step, const std::string& what, double x, double y);
  /// `allowed`: differences of elements that aren't held against x; empty, or undefined: none.
  void tensors(int64_t step, const std::string& what, const std::vector<at::Tensor>& x,
               const std::vector<at::Tensor>& y, const std::vector<at::Tensor>& allowed = {});

  bool found() const { return first_.has_value(); }
  std::optional<Difference>& first() { return first_; }

 private:
  void judge(int64_t step, const std::string& what, const std::string& name, const at::Tensor& x,
             const at::Tensor& y, double scale, const at::Tensor& allowed = {});

  VerifyResult& result_;
  double tolerance_;
  const std::vector<std::string>&names_, &buffer_names_;
  std::optional<Difference> first_;
};

}  // namespace troika

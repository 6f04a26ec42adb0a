#include "troika/parallel/tensor/split_linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "troika/parallel/tensor/peer_functions.h"

namespace troika {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A chunk's sum is started, and met by the other ranks, for some microseconds; at some 50 products of floats
// a nanosecond a chunk of this many is worth ten times that (bench/tensor_parallel prints both).
constexpr int64_t kProductsOfChunk = 8'000'000;
constexpr int64_t kMostChunks = 4;

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

std::vector<int64_t> sizes_with_last(const at::Tensor& x, int64_t last) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return sizes;
}

/// The gradients of input, weight and bias of a linear layer, as autograd's own functions make them.
/// `on_input` gets the input's as soon as it is there.
template <typename OnInput>
variable_list linear_gradients(AutogradContext* context, const at::Tensor& gradient,
                               const OnInput& on_input) {
  const variable_list saved = context->get_saved_variables();
  const at::Tensor &x = saved[0], &weight = saved[1];
  const at::Tensor rows = as_rows(gradient);
  variable_list out(4);
  if (context->needs_input_grad(0)) {
    out[0] = at::mm(rows, weight).view(x.sizes());
    on_input(out[0]);
  }
  if (context->needs_input_grad(1)) out[1] = at::mm(rows.t(), as_rows(x));
  if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) out[2] = rows.sum(0);
  return out;
}

void keep(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
          const std::optional<at::Tensor>& bias, TensorAxis* axis) {
  context->saved_data["has_bias"] = bias.has_value();
  context->save_for_backward({x, weight});
  context->saved_data["axis"] = reinterpret_cast<int64_t>(axis);
}

class ByColumns : public torch::autograd::Function<ByColumns> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, TensorAxis* axis) {
    keep(context, x, weight, bias, axis);
    return at::linear(x, weight, bias);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TensorAxis& axis = *reinterpret_cast<TensorAxis*>(context->saved_data["axis"].toInt());
    variable_list out =
        linear_gradients(context, gradients[0], [&](const at::Tensor& input) { axis.start_sum(input); });
    if (out[0].defined()) axis.finish_sum();
    return out;
  }
};

class ByRows : public torch::autograd::Function<ByRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, TensorAxis* axis) {
    keep(context, x, weight, bias, axis);
    const at::Tensor rows = as_rows(x);
    const int64_t chunks = row_chunks(rows.size(0), rows.size(1), weight.size(0));
    at::Tensor out;
    if (chunks == 1) {
      out = at::linear(rows, weight);
      axis->sum(out);
    } else {
      out = at::empty({rows.size(0), weight.size(0)}, x.options().requires_grad(false));
      for (int64_t i = 0; i < chunks; ++i) {
        const Range part = share({0, rows.size(0)}, chunks, i);
        at::Tensor to = out.narrow(0, part.begin, part.size());
        at::mm_out(to, rows.narrow(0, part.begin, part.size()), weight.t());
        axis->start_sum(to);
      }
      for (int64_t i = 0; i < chunks; ++i) axis->finish_sum();
    }
    if (bias) out.add_(*bias);
    return out.view(sizes_with_last(x, weight.size(0)));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return linear_gradients(context, gradients[0], [](const at::Tensor&) {});
  }
};

std::optional<at::Tensor> given(const at::Tensor& bias) {
  return bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
}

// Autocast's casts are functions of autograd of their own.
bool is_cast() { return at::autocast::is_autocast_enabled(at::kCPU); }

}  // namespace

int64_t row_chunks(int64_t rows, int64_t in, int64_t out) {
  return std::clamp<int64_t>(rows * in * out / kProductsOfChunk, 1,
                             std::min(kMostChunks, std::max<int64_t>(rows, 1)));
}

at::Tensor linear_by_columns(const at::Tensor& whole, const at::Tensor& weight, const at::Tensor& bias,
                             TensorAxis& axis) {
  if (axis.size() == 1) return at::linear(whole, weight, bias);
  if (is_cast()) return at::linear(to_slices(whole, axis), weight, bias);
  return ByColumns::apply(whole, weight, given(bias), &axis);
}

at::Tensor linear_by_rows(const at::Tensor& slice, const at::Tensor& weight, const at::Tensor& bias,
                          TensorAxis& axis) {
  if (axis.size() == 1) return at::linear(slice, weight, bias);
  if (is_cast()) {
    const at::Tensor sum = sum_parts(at::linear(slice, weight), axis);
    return bias.defined() ? sum + bias : sum;
  }
  return ByRows::apply(slice, weight, given(bias), &axis);
}

}  // namespace troika

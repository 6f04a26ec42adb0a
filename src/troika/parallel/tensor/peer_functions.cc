#include "troika/parallel/tensor/peer_functions.h"

#include <torch/csrc/autograd/custom_function.h>

namespace troika {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Along which dimension of how many elements; `keep` and `sum` need neither.
struct Along {
  int64_t dim = 0, whole = 0;
};
using Move = at::Tensor(const at::Tensor&, Along, TensorAxis&);

at::Tensor keep(const at::Tensor& x, Along, TensorAxis&) { return x.detach(); }

/// A copy: what comes in may be somebody else's too.
at::Tensor sum(const at::Tensor& part, Along, TensorAxis& axis) {
  at::Tensor sum = part.detach().clone(at::MemoryFormat::Contiguous);
  axis.sum(sum);
  return sum;
}

at::Tensor slice(const at::Tensor& whole, Along along, TensorAxis& axis) {
  return axis.slice(whole.detach(), along.dim).clone(at::MemoryFormat::Contiguous);
}

at::Tensor gather(const at::Tensor& slice, Along along, TensorAxis& axis) {
  return axis.gather(slice, along.dim, along.whole);
}

at::Tensor sum_scatter(const at::Tensor& part, Along along, TensorAxis& axis) {
  return axis.sum_scatter(part, along.dim);
}

/// One move forward, and its gradient's backward. The axis outlives the graph: it belongs to the rank, the
/// graph to one of its steps.
template <Move* there, Move* back>
class Exchange : public torch::autograd::Function<Exchange<there, back>> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& in, Along along, TensorAxis* axis) {
    context->saved_data["axis"] = reinterpret_cast<int64_t>(axis);
    context->saved_data["dim"] = along.dim;
    context->saved_data["whole"] = along.whole;
    return there(in, along, *axis);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Along along{context->saved_data["dim"].toInt(), context->saved_data["whole"].toInt()};
    auto& axis = *reinterpret_cast<TensorAxis*>(context->saved_data["axis"].toInt());
    return {back(gradients[0], along, axis), {}, {}};
  }
};

template <Move* there, Move* back>
at::Tensor exchange(const at::Tensor& x, Along along, TensorAxis& axis) {
  return axis.size() == 1 ? x : Exchange<there, back>::apply(x, along, &axis);
}

}  // namespace

at::Tensor to_slices(const at::Tensor& whole, TensorAxis& axis) {
  return exchange<keep, sum>(whole, {}, axis);
}

at::Tensor sum_parts(const at::Tensor& part, TensorAxis& axis) { return exchange<sum, keep>(part, {}, axis); }

at::Tensor take_slice(const at::Tensor& whole, int64_t dim, TensorAxis& axis) {
  return exchange<slice, gather>(whole, {dim, whole.size(dim)}, axis);
}

at::Tensor join_slices(const at::Tensor& slices, int64_t dim, int64_t whole, TensorAxis& axis) {
  return exchange<gather, slice>(slices, {dim, whole}, axis);
}

at::Tensor gather_for_slices(const at::Tensor& slices, int64_t dim, int64_t whole, TensorAxis& axis) {
  return exchange<gather, sum_scatter>(slices, {dim, whole}, axis);
}

at::Tensor sum_parts_to_slices(const at::Tensor& part, int64_t dim, TensorAxis& axis) {
  return exchange<sum_scatter, gather>(part, {dim, part.size(dim)}, axis);
}

}  // namespace troika

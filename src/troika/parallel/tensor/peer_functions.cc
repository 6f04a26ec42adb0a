#include "troika/parallel/tensor/peer_functions.h"

#include <torch/csrc/autograd/custom_function.h>

namespace troika {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The axis outlives the graph: it belongs to the rank, the graph to one of its steps.
void keep(AutogradContext* context, TensorAxis& axis) {
  context->saved_data["axis"] = reinterpret_cast<int64_t>(&axis);
}

TensorAxis& axis_of(AutogradContext* context) {
  return *reinterpret_cast<TensorAxis*>(context->saved_data["axis"].toInt());
}

/// A copy: what comes in may be somebody else's too.
at::Tensor summed(const at::Tensor& part, TensorAxis& axis) {
  at::Tensor sum = part.detach().clone(at::MemoryFormat::Contiguous);
  axis.sum(sum);
  return sum;
}

class ToSlices : public torch::autograd::Function<ToSlices> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& in, TensorAxis* axis) {
    keep(context, *axis);
    return in.detach();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {summed(gradients[0], axis_of(context)), {}};
  }
};

class SumParts : public torch::autograd::Function<SumParts> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& in, TensorAxis* axis) {
    return summed(in, *axis);
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients[0], {}};
  }
};

class TakeSlice : public torch::autograd::Function<TakeSlice> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& in, int64_t dim, TensorAxis* axis) {
    keep(context, *axis);
    context->saved_data["dim"] = dim;
    context->saved_data["whole"] = in.size(dim);
    return axis->slice(in.detach(), dim).clone(at::MemoryFormat::Contiguous);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {axis_of(context).gather(gradients[0], context->saved_data["dim"].toInt(),
                                    context->saved_data["whole"].toInt()),
            {},
            {}};
  }
};

class JoinSlices : public torch::autograd::Function<JoinSlices> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& in, int64_t dim, int64_t whole,
                            TensorAxis* axis) {
    keep(context, *axis);
    context->saved_data["dim"] = dim;
    return axis->gather(in, dim, whole);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const TensorAxis& axis = axis_of(context);
    return {axis.slice(gradients[0], context->saved_data["dim"].toInt()).contiguous(), {}, {}, {}};
  }
};

class GatherForSlices : public torch::autograd::Function<GatherForSlices> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& in, int64_t dim, int64_t whole,
                            TensorAxis* axis) {
    keep(context, *axis);
    context->saved_data["dim"] = dim;
    return axis->gather(in, dim, whole);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {axis_of(context).sum_scatter(gradients[0], context->saved_data["dim"].toInt()), {}, {}, {}};
  }
};

class SumPartsToSlices : public torch::autograd::Function<SumPartsToSlices> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& in, int64_t dim, TensorAxis* axis) {
    keep(context, *axis);
    context->saved_data["dim"] = dim;
    context->saved_data["whole"] = in.size(dim);
    return axis->sum_scatter(in, dim);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {axis_of(context).gather(gradients[0], context->saved_data["dim"].toInt(),
                                    context->saved_data["whole"].toInt()),
            {},
            {}};
  }
};

}  // namespace

at::Tensor to_slices(const at::Tensor& whole, TensorAxis& axis) {
  return axis.size() == 1 ? whole : ToSlices::apply(whole, &axis);
}

at::Tensor sum_parts(const at::Tensor& part, TensorAxis& axis) {
  return axis.size() == 1 ? part : SumParts::apply(part, &axis);
}

at::Tensor take_slice(const at::Tensor& whole, int64_t dim, TensorAxis& axis) {
  return axis.size() == 1 ? whole : TakeSlice::apply(whole, dim, &axis);
}

at::Tensor join_slices(const at::Tensor& slice, int64_t dim, int64_t whole, TensorAxis& axis) {
  return axis.size() == 1 ? slice : JoinSlices::apply(slice, dim, whole, &axis);
}

at::Tensor gather_for_slices(const at::Tensor& slice, int64_t dim, int64_t whole, TensorAxis& axis) {
  return axis.size() == 1 ? slice : GatherForSlices::apply(slice, dim, whole, &axis);
}

at::Tensor sum_parts_to_slices(const at::Tensor& part, int64_t dim, TensorAxis& axis) {
  return axis.size() == 1 ? part : SumPartsToSlices::apply(part, dim, &axis);
}

}  // namespace troika

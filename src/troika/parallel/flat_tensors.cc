#include "troika/parallel/flat_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include "troika/base/error.h"

namespace troika {

FlatLayout layout_of(const std::vector<NamedTensor>& parameters, at::ScalarType dtype) {
  if (dtype != at::kFloat && dtype != at::kDouble) {
    fail_usage("weights of type {} can't be trained: use float32 or float64", c10::toString(dtype));
  }
  std::vector<FlatLayout::Entry> entries;
  for (const NamedTensor& p : parameters) {
    if (p.tensor.scalar_type() != dtype) {
      fail_usage("parameter \"{}\" is of type {}, not {}", p.name, c10::toString(p.tensor.scalar_type()),
                 c10::toString(dtype));
    }
    entries.push_back({p.name, p.tensor.sizes().vec(), 0, 0});
  }
  return make_flat_layout(std::move(entries), static_cast<int64_t>(c10::elementSize(dtype)));
}

at::Tensor empty_flat(const FlatLayout& layout, at::ScalarType dtype) {
  at::Tensor flat = at::empty({layout.total}, at::TensorOptions().dtype(dtype));
  TROIKA_ASSERT(reinterpret_cast<uintptr_t>(flat.data_ptr()) % 64 == 0,
                "a flat buffer must start on 64 bytes");
  return flat;
}

at::Tensor zero_flat(const FlatLayout& layout, at::ScalarType dtype) {
  at::Tensor flat = empty_flat(layout, dtype);
  flat.zero_();
  return flat;
}

void zero_range(const at::Tensor& flat, Range elements) {
  const at::NoGradGuard no_grad;
  flat.narrow(0, elements.begin, elements.size()).zero_();
}

at::Tensor view_of(const at::Tensor& flat, const FlatLayout::Entry& entry) {
  const at::NoGradGuard no_grad;
  return flat.detach().narrow(0, entry.offset, entry.size).view(entry.shape);
}

std::vector<NamedTensor> views_of(const at::Tensor& flat, const FlatLayout& layout) {
  std::vector<NamedTensor> views;
  for (const auto& entry : layout.entries) views.push_back({entry.name, view_of(flat, entry)});
  return views;
}

void move_into(const at::Tensor& flat, const FlatLayout::Entry& entry, at::Tensor parameter) {
  const at::NoGradGuard no_grad;
  view_of(flat, entry).copy_(parameter);
  point_into(flat, entry, std::move(parameter));
}

void point_into(const at::Tensor& flat, const FlatLayout::Entry& entry, at::Tensor parameter) {
  TROIKA_ASSERT(parameter.sizes() == at::IntArrayRef(entry.shape), entry.name);
  parameter.set_data(view_of(flat, entry));
}

void drop_gradients(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& p : parameters) p.tensor.mutable_grad().reset();
}

const void* gradient_of(const NamedTensor& parameter) {
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) return nullptr;
  if (gradient.layout() != at::kStrided) gradient = gradient.to_dense();
  if (!gradient.is_contiguous()) gradient = gradient.contiguous();
  if (gradient.scalar_type() != parameter.tensor.scalar_type() ||
      gradient.sizes() != parameter.tensor.sizes()) {
    fail(
        "the gradient of parameter \"{}\" has another type or shape than the parameter: leave .grad to "
        "backward",
        parameter.name);
  }
  return gradient.const_data_ptr();
}

}  // namespace troika

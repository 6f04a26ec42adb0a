// Flat buffers as tensors: the torch side of FlatLayout.
// Threading: pure functions; a tensor belongs to who holds it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "troika/parallel/flat_layout.h"
#include "troika/parallel/model.h"

namespace troika {

/// The buffers that one rank works on. Several ranks may have the same ones.
struct FlatBuffers {
  FlatLayout layout;
  at::Tensor weights;
  std::vector<at::Tensor> moments;  // as moment_names()
};

/// float32 or float64; throws UsageError for another type. A stage without parameters has an empty one.
FlatLayout layout_of(const std::vector<NamedTensor>& parameters, at::ScalarType dtype);

/// Without values: memory that nobody has touched yet.
at::Tensor empty_flat(const FlatLayout& layout, at::ScalarType dtype);
at::Tensor zero_flat(const FlatLayout& layout, at::ScalarType dtype);
/// Sets a range of elements to zero: who does it first gets the pages near its core.
void zero_range(const at::Tensor& flat, Range elements);

/// Parameter `entry` of a flat buffer, in its shape, outside autograd.
at::Tensor view_of(const at::Tensor& flat, const FlatLayout::Entry& entry);
std::vector<NamedTensor> views_of(const at::Tensor& flat, const FlatLayout& layout);

/// Copies the parameter's numbers into its place in `flat` and makes that its storage.
void move_into(const at::Tensor& flat, const FlatLayout::Entry& entry, at::Tensor parameter);
/// Makes the place in `flat` the parameter's storage; its own numbers are dropped.
void point_into(const at::Tensor& flat, const FlatLayout::Entry& entry, at::Tensor parameter);

/// Makes every .grad undefined, so that backward leaves its own tensor there instead of adding to one.
void drop_gradients(const std::vector<NamedTensor>& parameters);

/// The memory of a parameter's .grad in the parameter's element order, or null if it has none. A .grad that
/// isn't dense and contiguous is replaced by one that is.
const void* gradient_of(const NamedTensor& parameter);

}  // namespace troika

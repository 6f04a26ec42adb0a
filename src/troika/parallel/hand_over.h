// How a tensor of one stage becomes an input of another: out of the producer's graph without a copy, and into
// the consumer's as what a serial forward would have had there: not a leaf, not a view, requiring grad if its
// edge does. Threading: pure functions; the two sides may be different threads, one after the other.
#pragma once

#include <ATen/core/Tensor.h>

namespace troika {

/// The same numbers outside of the graph. Shares the version counter, so that autograd still notices whoever
/// writes into what the producer has saved.
at::Tensor hand_out(const at::Tensor& tensor);

/// A leaf that gathers the gradient of `tensor` (handed out), and what the layers are given.
struct HandedIn {
  at::Tensor leaf;   // undefined if no gradient is to come back
  at::Tensor input;  // for the layers
};
HandedIn hand_in(const at::Tensor& tensor, bool needs_gradient);

}  // namespace troika

#include "troika/parallel/hand_over.h"

#include <torch/csrc/autograd/custom_function.h>

namespace troika {
namespace {

/// The identity. Its output is a tensor of its own over the same memory: a layer may write into it, as into
/// any output of the layer before, which it may not into a leaf.
class Identity : public torch::autograd::Function<Identity> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& in) { return in.detach(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return gradients;
  }
};

}  // namespace

at::Tensor hand_out(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach() : tensor; }

HandedIn hand_in(const at::Tensor& tensor, bool needs_gradient) {
  if (!tensor.defined() || !needs_gradient) return {{}, tensor};
  at::Tensor leaf = tensor.detach().requires_grad_(true);
  at::Tensor input = Identity::apply(leaf);
  return {std::move(leaf), std::move(input)};
}

}  // namespace troika

#include "troika/parallel/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "troika/base/error.h"

namespace troika {
namespace {

class ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(GradientSync& sync, size_t parameter, const void* expected)
      : sync_(sync), parameter_(parameter), expected_(expected) {}

  void operator()(const at::Tensor& tensor) override {
    // Autograd adds in place into what .grad is; a module that replaces it would train nothing.
    if (tensor.grad().const_data_ptr() != expected_) {
      fail(
          "the .grad of parameter \"{}\" has been replaced or reset by the model or the loss: leave .grad "
          "alone",
          sync_.buffers().layout.entries[parameter_].name);
    }
    sync_.ready(parameter_);
  }

 private:
  GradientSync& sync_;
  size_t parameter_;
  const void* expected_;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<NamedTensor>& parameters, GradientSync& sync) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].tensor;
    torch::autograd::impl::set_post_acc_grad_hooks(
        tensor, std::make_unique<ReadyHook>(sync, i, tensor.grad().const_data_ptr()));
    parameters_.push_back(tensor);
  }
}

// A module may outlive its replica.
GradientHooks::~GradientHooks() {
  for (const at::Tensor& tensor : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
    tensor.mutable_grad() = at::Tensor();
  }
}

}  // namespace troika

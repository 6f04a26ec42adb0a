// A model is a list of named layers; a single module is a list of one. A layer is a name and a factory, so
// that only the ranks that need a layer build it, and every rank builds the same numbers. Threading: a Layer
// is a value and may be copied to any thread; a LiveLayer belongs to the rank that made it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace troika {

using Tensors = std::vector<at::Tensor>;

/// A constructed layer: the module that owns the parameters, and how to call it.
struct LiveLayer {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
};

struct Layer {
  std::string name;
  std::function<LiveLayer()> make;
};

namespace internal {

template <typename Module>
Tensors call_forward(Module& module, const Tensors& in) {
  if constexpr (requires { Tensors(module.forward(in)); }) {
    return module.forward(in);
  } else if constexpr (requires { module.forward(in[0]); }) {
    return {module.forward(in.at(0))};
  } else {
    return {module.forward(in.at(0), in.at(1))};
  }
}

}  // namespace internal

/// A layer that is `std::make_shared<Module>(arguments...)`. Module::forward takes and returns one tensor (or
/// takes two), or takes and returns Tensors. Module is the Impl class of torch's holders
/// (torch::nn::LinearImpl) or a user's own class.
template <typename Module, typename... Arguments>
Layer layer(std::string name, Arguments... arguments) {
  return {
      std::move(name), [arguments...] {
        auto module = std::make_shared<Module>(arguments...);
        return LiveLayer{module, [module](const Tensors& in) { return internal::call_forward(*module, in); }};
      }};
}

}  // namespace troika

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
  size_t takes = 0;           // the most tensors that forward reads; 0: all
  bool calls_module = false;  // forward is the module's own, and nothing besides
};

/// A parameter of this layer that is another, earlier layer's: one tensor with one value and one gradient,
/// the sum over its uses.
struct Tie {
  std::string parameter;  // of this layer: "weight"
  std::string owner;      // the earlier layer's name
  std::string of_owner;   // the parameter's name in it
};

/// A layer's inputs are the outputs of the layer before it (the first one's: the batch's inputs), then what
/// it gets. Its outputs are those for the next layer, then what it puts, one for each name: what goes both
/// ways is returned twice. So an activation may skip any number of layers.
struct Layer {
  std::string name;
  std::function<LiveLayer()> make;
  std::vector<std::string> puts = {};
  std::vector<std::string> gets = {};  // each put by an earlier layer
  std::vector<Tie> ties = {};

  Layer& put(std::string what) & { return puts.push_back(std::move(what)), *this; }
  Layer& get(std::string what) & { return gets.push_back(std::move(what)), *this; }
  Layer& tie(std::string parameter, std::string owner, std::string of_owner) & {
    return ties.push_back({std::move(parameter), std::move(owner), std::move(of_owner)}), *this;
  }
  Layer&& put(std::string what) && { return std::move(put(std::move(what))); }
  Layer&& get(std::string what) && { return std::move(get(std::move(what))); }
  Layer&& tie(std::string parameter, std::string owner, std::string of_owner) && {
    return std::move(tie(std::move(parameter), std::move(owner), std::move(of_owner)));
  }
};

namespace internal {

/// 1 or 2 tensors; 0: as many as come.
template <typename Module>
constexpr size_t tensors_taken() {
  if constexpr (requires { Tensors(std::declval<Module&>().forward(std::declval<const Tensors&>())); }) {
    return 0;
  } else if constexpr (requires { std::declval<Module&>().forward(std::declval<const at::Tensor&>()); }) {
    return 1;
  } else {
    return 2;
  }
}

template <typename Module>
Tensors call_forward(Module& module, const Tensors& in) {
  if constexpr (tensors_taken<Module>() == 0) {
    return module.forward(in);
  } else if constexpr (tensors_taken<Module>() == 1) {
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
  return {std::move(name), [arguments...] {
            auto module = std::make_shared<Module>(arguments...);
            return LiveLayer{module,
                             [module](const Tensors& in) { return internal::call_forward(*module, in); },
                             internal::tensors_taken<Module>(), true};
          }};
}

}  // namespace troika

// Parts of models for the tests of the split backward: each kind of layer and each shape of graph that could
// go wrong. Threading: none.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace troika::test {

using Tensors = std::vector<at::Tensor>;
using Shapes = std::vector<std::vector<int64_t>>;

/// A part of a model, its parameters and the shapes of what it receives.
struct Part {
  Tensors parameters;
  Shapes inputs;
  std::function<Tensors(const Tensors& inputs)> run;
  bool is_first_gradient_undefined = false;
};

struct ZooEntry {
  std::function<Part()> make;
  int64_t reached = 0;  // parameters that get a gradient
  int64_t whole = 0;    // of those, computed in the input part
  bool is_fused_in_float32 = false;
};

/// A leaf of the default type.
at::Tensor weight(const std::vector<int64_t>& shape);

/// From tensors and a function of inputs and parameters.
Part part_of(Tensors parameters, Shapes inputs,
             std::function<Tensors(const Tensors& x, const Tensors& p)> run);

/// From a module and how to call it.
template <typename Module, typename Call>
Part module_part(Module module, Shapes inputs, Call call) {
  return {module->parameters(), std::move(inputs),
          [module, call](const Tensors& x) mutable { return Tensors{call(module, x)}; }};
}

/// From a module with one input.
template <typename Module>
Part chain_of(Module module, std::vector<int64_t> input) {
  return module_part(module, {std::move(input)},
                     [](Module& m, const Tensors& x) { return m->forward(x[0]); });
}

/// A user's function: one node, whose backward gives everything in one go.
struct Scale : torch::autograd::Function<Scale> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w);
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients);
  static int calls;
  static bool fails;
};

const std::map<std::string, ZooEntry>& zoo();
std::vector<std::string> zoo_names();

}  // namespace troika::test

// The built-in models at a small size, with inputs and weights that no generator makes, for their tests.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <string>
#include <vector>

#include "troika/parallel/model.h"
#include "troika/train/models/registry.h"

namespace troika::test {

struct Kind {
  std::string type;
  int64_t window = 0;  // 0: a table
};

inline const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {{"mlp", 0}, {"mlp", 5}, {"lstm", 5},        {"gru", 5},
                                        {"tcn", 5}, {"cnn", 5}, {"transformer", 0}, {"transformer", 5}};
  return all;
}

inline std::string name_of(const Kind& kind) {
  return kind.type + (kind.window > 0 ? " on windows of " + std::to_string(kind.window) : " on a table");
}

inline ModelShape small_shape(const Kind& kind) { return {3, {4, 7}, 2, kind.window}; }

inline ModelRecipe small_recipe(const Kind& kind) {
  ModelRecipe recipe;
  recipe.type = kind.type;
  recipe.width = 6;
  recipe.layers = 2;
  recipe.heads = 2;
  return recipe;
}

/// Between -1 and 1, without a pattern that a model could overlook.
inline at::Tensor waves(at::IntArrayRef shape, double start) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return at::sin(at::arange(size, at::kDouble) * 1.7 + start).view(shape);
}

inline Tensors small_inputs(const Kind& kind, int64_t samples) {
  const ModelShape shape = small_shape(kind);
  std::vector<int64_t> rows{samples};
  if (kind.window > 0) rows.push_back(kind.window);
  const auto with = [&](int64_t last) {
    std::vector<int64_t> sizes = rows;
    sizes.push_back(last);
    return sizes;
  };
  at::Tensor codes = at::arange(samples * std::max<int64_t>(1, kind.window), at::kLong).view(rows);
  codes = at::stack(
      {codes.remainder(shape.category_values[0]), (codes * 3 + 1).remainder(shape.category_values[1])}, -1);
  return {waves(with(shape.floats), 0.3), codes};
}

/// In float64, with every weight and running statistic off its usual start.
inline Model small_model(const Kind& kind, const ModelRecipe& recipe) {
  Model model(make_model(recipe, small_shape(kind)), 1, at::kDouble);
  const at::NoGradGuard no_grad;
  double start = 0;
  for (const NamedTensor& p : model.parameters()) {
    p.tensor.copy_(waves(p.tensor.sizes(), start += 0.37) * 0.6);
    if (p.name.find("norm") != std::string::npos && p.name.ends_with("weight")) p.tensor.add_(1);
  }
  for (const NamedTensor& other : model.others()) {
    if (!other.tensor.is_floating_point()) continue;
    other.tensor.copy_(waves(other.tensor.sizes(), start += 0.37));
    if (other.name.ends_with("running_var")) other.tensor.abs_().add_(0.5);
  }
  return model;
}

inline Model small_model(const Kind& kind) { return small_model(kind, small_recipe(kind)); }

}  // namespace troika::test

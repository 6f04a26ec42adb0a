#include "troika/train/models/mlp.h"

#include <ATen/ops/relu.h>
#include <fmt/format.h>

#include <algorithm>

#include "troika/parallel/tensor/layers.h"

namespace troika {
namespace {

// Slices that come in are of all `in` numbers, never of each row of a window.
class HiddenImpl : public troika::LinearImpl {
 public:
  HiddenImpl(int64_t in, int64_t out, double dropout) : LinearImpl(in, out), dropout_(dropout) {}

  at::Tensor forward(const at::Tensor& in) {
    return drop(at::relu(LinearImpl::forward(in.flatten(1))), dropout_);
  }
  std::vector<SplitWay> ways(int ranks) const override { return product_ways(ranks); }

 private:
  double dropout_;
};

class HeadImpl : public troika::LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& in) { return LinearImpl::forward(in.flatten(1)); }
  std::vector<SplitWay> ways(int ranks) const override { return product_ways(ranks); }
};

}  // namespace

std::vector<Layer> make_mlp(const ModelRecipe& recipe, const ModelShape& shape) {
  std::vector<Layer> layers;
  int64_t width = add_embed(layers, shape) * std::max<int64_t>(1, shape.window);
  for (int64_t i = 1; i <= recipe.layers; ++i) {
    layers.push_back(layer<HiddenImpl>(fmt::format("hidden{}", i), width, recipe.width, recipe.dropout));
    width = recipe.width;
  }
  layers.push_back(layer<HeadImpl>("head", width, shape.outputs));
  return layers;
}

}  // namespace troika

#include "troika/train/models/mlp.h"

#include <ATen/ops/relu.h>
#include <fmt/format.h>

#include <algorithm>

#include "troika/parallel/tensor/layers.h"

namespace troika {
namespace {

/// The first layer lays the rows of a window one after the other, which slices of rows can't be.
std::vector<SplitWay> ways_of(std::vector<SplitWay> ways, bool reads_window) {
  if (reads_window) std::erase_if(ways, [](const SplitWay& way) { return !way.in.is_whole(); });
  return ways;
}

class HiddenImpl : public troika::LinearImpl {
 public:
  HiddenImpl(int64_t in, int64_t out, double dropout, bool reads_window)
      : LinearImpl(in, out), dropout_(dropout), reads_window_(reads_window) {}

  at::Tensor forward(const at::Tensor& in) {
    return drop(at::relu(LinearImpl::forward(in.flatten(1))), dropout_);
  }
  std::vector<SplitWay> ways(int ranks) const override { return ways_of(product_ways(ranks), reads_window_); }

 private:
  double dropout_;
  bool reads_window_;
};

class HeadImpl : public troika::LinearImpl {
 public:
  HeadImpl(int64_t in, int64_t out, bool reads_window) : LinearImpl(in, out), reads_window_(reads_window) {}
  at::Tensor forward(const at::Tensor& in) { return LinearImpl::forward(in.flatten(1)); }
  std::vector<SplitWay> ways(int ranks) const override { return ways_of(product_ways(ranks), reads_window_); }

 private:
  bool reads_window_;
};

}  // namespace

std::vector<Layer> make_mlp(const ModelRecipe& recipe, const ModelShape& shape) {
  std::vector<Layer> layers;
  int64_t width = add_embed(layers, shape) * std::max<int64_t>(1, shape.window);
  for (int64_t i = 1; i <= recipe.layers; ++i) {
    layers.push_back(layer<HiddenImpl>(fmt::format("hidden{}", i), width, recipe.width, recipe.dropout,
                                       i == 1 && shape.window > 0));
    width = recipe.width;
  }
  layers.push_back(layer<HeadImpl>("head", width, shape.outputs, recipe.layers == 0 && shape.window > 0));
  return layers;
}

}  // namespace troika

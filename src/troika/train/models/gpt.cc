#include "troika/train/models/gpt.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>

#include "troika/base/error.h"
#include "troika/parallel/tensor/layers.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/train/models/encoder_layer.h"
#include "troika/train/models/transformer.h"

namespace troika {
namespace {

// So small that the first logits are nearly equal, as the head has the embedding's weight.
constexpr double kDeviation = 0.02;

at::Tensor drawn(int64_t rows, int64_t width) { return at::empty({rows, width}).normal_(0, kDeviation); }

/// {anything, int64 [n, window, 1]} to [n, window, width].
class TokenEmbeddingImpl : public torch::nn::Module, public Splittable {
 public:
  TokenEmbeddingImpl(int64_t values, int64_t width)
      : weight_(register_parameter("weight", drawn(values, width))) {}

  Tensors forward(const Tensors& in) {
    return {table_(in.at(1).squeeze(2) - 1, weight_)};  // inputs begin at 1, as 0 stands for null
  }

  std::vector<SplitWay> ways(int ranks) const override {
    return SplitTable::ways(weight_.size(0), weight_.size(1), ranks);
  }
  void split(const SplitWay& way, TensorAxis& axis) override { table_.split(way, axis); }

 private:
  at::Tensor weight_;
  SplitTable table_;
};

class PositionImpl : public torch::nn::Module, public Splittable {
 public:
  PositionImpl(int64_t window, int64_t width, double dropout)
      : weight_(register_parameter("weight", drawn(window, width))), dropout_(dropout) {}

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor x = axis_ != nullptr && takes_whole_ ? take_slice(in, -1, *axis_) : in;
    return dropout_of(x + weight_, dropout_, is_training(), out_, axis_);
  }

  std::vector<SplitWay> ways(int ranks) const override {
    const int64_t width = weight_.size(1);
    if (width < ranks) return {};
    const Spread slices{-1, width};
    const std::vector<CutTensor> cuts{{"weight", {1, width}}};
    const int64_t longest = share({0, width}, ranks, 0).size();
    return {{"columns", slices, slices, cuts, 0, 0}, {"columns", {}, slices, cuts, longest, longest}};
  }
  void split(const SplitWay& way, TensorAxis& axis) override {
    axis_ = &axis;
    takes_whole_ = way.in.is_whole();
    out_ = way.out;
  }

 private:
  at::Tensor weight_;
  double dropout_;
  TensorAxis* axis_ = nullptr;
  bool takes_whole_ = true;
  Spread out_;
};

/// [n, window, width] to [n, window, values].
class TokenHeadImpl : public torch::nn::Module, public Splittable {
 public:
  TokenHeadImpl(int64_t values, int64_t width)
      : weight_(register_parameter("weight", drawn(values, width))) {}

  at::Tensor forward(const at::Tensor& in) { return product_(in, weight_, {}); }

  std::vector<SplitWay> ways(int ranks) const override {
    return SplitProduct::ways(weight_.size(1), weight_.size(0), false, ranks);
  }
  void split(const SplitWay& way, TensorAxis& axis) override { product_.split(way, axis); }

 private:
  at::Tensor weight_;
  SplitProduct product_;
};

}  // namespace

std::vector<Layer> make_gpt(const ModelRecipe& recipe, const ModelShape& shape) {
  TROIKA_ASSERT(shape.floats == 0 && shape.category_values == std::vector<int64_t>{shape.outputs + 1},
                "a gpt reads the same tokens that it predicts");
  const int64_t values = shape.outputs, width = recipe.width;
  EncoderLayerOptions block;
  block.width = width;
  block.heads = heads_of(recipe);
  block.inner = 4 * width;
  block.dropout = recipe.dropout;
  block.causal = true;
  block.tokens = shape.window;
  std::vector<Layer> layers;
  layers.push_back(layer<TokenEmbeddingImpl>("embed", values, width));
  layers.push_back(layer<PositionImpl>("position", shape.window, width, recipe.dropout));
  for (int64_t i = 1; i <= recipe.layers; ++i)
    layers.push_back(encoder_layer(fmt::format("block{}", i), block));
  layers.push_back(layer<torch::nn::LayerNormImpl>("norm", torch::nn::LayerNormOptions({width})));
  layers.push_back(layer<TokenHeadImpl>("head", values, width).tie("weight", "embed", "weight"));
  return layers;
}

}  // namespace troika

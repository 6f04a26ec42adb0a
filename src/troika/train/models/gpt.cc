#include "troika/train/models/gpt.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>

#include "troika/base/error.h"
#include "troika/train/models/encoder_layer.h"
#include "troika/train/models/transformer.h"

namespace troika {
namespace {

// So small that the first logits are nearly equal, as the head has the embedding's weight.
constexpr double kDeviation = 0.02;

at::Tensor drawn(int64_t rows, int64_t width) { return at::empty({rows, width}).normal_(0, kDeviation); }

/// {anything, int64 [n, window, 1]} to [n, window, width].
class TokenEmbeddingImpl : public torch::nn::Module {
 public:
  TokenEmbeddingImpl(int64_t values, int64_t width)
      : weight_(register_parameter("weight", drawn(values, width))) {}

  Tensors forward(const Tensors& in) {
    return {at::embedding(weight_, in.at(1).squeeze(2) - 1)};  // inputs begin at 1, as 0 stands for null
  }

 private:
  at::Tensor weight_;
};

class PositionImpl : public torch::nn::Module {
 public:
  PositionImpl(int64_t window, int64_t width, double dropout)
      : weight_(register_parameter("weight", drawn(window, width))), dropout_(dropout) {}

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor out = in + weight_;
    return dropout_ > 0 ? at::dropout(out, dropout_, is_training()) : out;
  }

 private:
  at::Tensor weight_;
  double dropout_;
};

/// [n, window, width] to [n, window, values].
class TokenHeadImpl : public torch::nn::Module {
 public:
  TokenHeadImpl(int64_t values, int64_t width)
      : weight_(register_parameter("weight", drawn(values, width))) {}

  at::Tensor forward(const at::Tensor& in) { return at::linear(in, weight_); }

 private:
  at::Tensor weight_;
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

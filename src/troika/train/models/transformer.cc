#include "troika/train/models/transformer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/parallel/tensor/layers.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/train/models/embed.h"
#include "troika/train/models/encoder_layer.h"

namespace troika {
namespace {

constexpr double kPositionDeviation = 0.02;

/// [n, window, in] to [n, window, width].
class RowTokensImpl : public torch::nn::Module, public Splittable {
 public:
  RowTokensImpl(int64_t in, int64_t window, int64_t width) {
    linear_ = register_module("linear", ColumnLinear(in, width));
    position_ = register_module("position", torch::nn::Embedding(window, width));
    const at::NoGradGuard no_grad;
    position_->weight.mul_(kPositionDeviation);
  }

  at::Tensor forward(const at::Tensor& in) { return linear_->forward(in) + position_->weight; }

  std::vector<SplitWay> ways(int ranks) const override {
    const int64_t width = linear_->options.out_features();
    std::vector<SplitWay> ways = linear_->ways(ranks);
    for (SplitWay& way : ways) {
      way.cuts = with_prefix("linear", way.cuts);
      way.cuts.push_back({"position.weight", {1, width}});
    }
    return ways;
  }
  void split(const SplitWay& way, TensorAxis& axis) override { linear_->split(way, axis); }

 private:
  ColumnLinear linear_{nullptr};
  torch::nn::Embedding position_{nullptr};
};

/// {[n, floats], [n, categories]} to [n, 1 + floats + categories, width].
class ColumnTokensImpl : public torch::nn::Module, public Splittable {
 public:
  ColumnTokensImpl(int64_t floats, const std::vector<int64_t>& category_values, int64_t width) {
    leading_ = add("leading", {1, width}, width);
    if (floats > 0) {
      weight_ = add("weight", {floats, width}, width);
      bias_ = add("bias", {floats, width}, width);
    }
    for (size_t i = 0; i < category_values.size(); ++i) {
      categories_.push_back(
          register_module(fmt::format("category{}", i), torch::nn::Embedding(category_values[i], width)));
      const at::NoGradGuard no_grad;
      draw(categories_.back()->weight, width);
    }
  }

  Tensors forward(const Tensors& in) {
    const int64_t n = in.at(0).size(0);
    Tensors tokens{leading_.expand({n, 1, leading_.size(1)})};
    if (weight_.defined()) {
      const at::Tensor floats = axis_ == nullptr ? in[0] : to_slices(in[0], *axis_);
      tokens.push_back(at::addcmul(bias_, floats.unsqueeze(2), weight_));
    }
    for (size_t i = 0; i < categories_.size(); ++i) {
      const at::Tensor codes = in.at(1).narrow(1, static_cast<int64_t>(i), 1);
      tokens.push_back(at::embedding(categories_[i]->weight, codes));
    }
    return {at::cat(tokens, 1)};
  }

  std::vector<SplitWay> ways(int ranks) const override {
    const int64_t width = leading_.size(1);
    if (width < ranks) return {};
    // Of a token that is a float, one number has a gradient.
    SplitWay way{"columns", {}, {-1, width}, {}, 1, 1};
    for (const auto& item : named_parameters()) way.cuts.push_back({item.key(), {1, width}});
    return {way};
  }
  void split(const SplitWay&, TensorAxis& axis) override { axis_ = &axis; }

 private:
  static void draw(at::Tensor& weight, int64_t width) {
    const double bound = 1 / std::sqrt(static_cast<double>(width));
    weight.uniform_(-bound, bound);
  }

  at::Tensor add(const char* name, at::IntArrayRef shape, int64_t width) {
    at::Tensor weight = at::empty(shape);
    draw(weight, width);
    return register_parameter(name, weight);
  }

  at::Tensor leading_;
  at::Tensor weight_;
  at::Tensor bias_;
  std::vector<torch::nn::Embedding> categories_;
  TensorAxis* axis_ = nullptr;
};

/// Of the token that is read: [n, width], or [n, tokens, width] if no block has chosen it.
class ReadNormImpl : public torch::nn::LayerNormImpl {
 public:
  ReadNormImpl(int64_t width, int64_t token)
      : LayerNormImpl(torch::nn::LayerNormOptions({width})), token_(token) {}

  at::Tensor forward(const at::Tensor& in) {
    return LayerNormImpl::forward(in.dim() == 3 ? in.select(1, token_) : in);
  }

 private:
  int64_t token_;
};

}  // namespace

int64_t heads_of(const ModelRecipe& recipe) {
  const int64_t heads = recipe.heads > 0 ? recipe.heads : std::max<int64_t>(1, recipe.width / 16);
  if (recipe.width % heads == 0) return heads;
  std::vector<int64_t> fitting;
  for (int64_t i = heads; i >= 1 && fitting.size() < 3; --i) {
    if (recipe.width % i == 0) fitting.push_back(i);
  }
  std::vector<int64_t> widths{(recipe.width / heads + 1) * heads};
  if (recipe.width > heads) widths.insert(widths.begin(), widths[0] - heads);
  fail_usage(
      "model.width = {} can't be shared out among {} heads{}; set model.heads to {}, or model.width to {}",
      recipe.width, heads, recipe.heads > 0 ? "" : " (one for each 16 of width)", fmt::join(fitting, " or "),
      fmt::join(widths, " or "));
}

std::vector<Layer> make_transformer(const ModelRecipe& recipe, const ModelShape& shape) {
  if (shape.window == 0 && recipe.layers < 1) {
    fail_usage(
        "model.layers = 0: a transformer on a table reads one token, which the others reach in its layers; "
        "set "
        "it to 1 or more");
  }
  EncoderLayerOptions block{recipe.width, heads_of(recipe), 4 * recipe.width, recipe.dropout, {}};
  block.tokens =
      shape.window > 0 ? shape.window : 1 + shape.floats + static_cast<int64_t>(shape.category_values.size());
  const int64_t read = shape.window > 0 ? -1 : 0;
  std::vector<Layer> layers;
  if (shape.window > 0) {
    const int64_t width = add_embed(layers, shape);
    layers.push_back(layer<RowTokensImpl>("tokens", width, shape.window, recipe.width));
  } else {
    layers.push_back(layer<ColumnTokensImpl>("tokens", shape.floats, shape.category_values, recipe.width));
  }
  for (int64_t i = 1; i <= recipe.layers; ++i) {
    if (i == recipe.layers) block.token = read;
    layers.push_back(encoder_layer(fmt::format("block{}", i), block));
  }
  layers.push_back(layer<ReadNormImpl>("norm", recipe.width, read));
  layers.push_back(layer<torch::nn::LinearImpl>("head", recipe.width, shape.outputs));
  return layers;
}

}  // namespace troika

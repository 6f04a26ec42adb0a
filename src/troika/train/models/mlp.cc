#include "troika/train/models/mlp.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

namespace troika {
namespace {

class EmbedImpl : public torch::nn::Module {
 public:
  explicit EmbedImpl(const std::vector<int64_t>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      tables_.push_back(register_module(fmt::format("category{}", i),
                                        torch::nn::Embedding(values[i], embedding_width(values[i]))));
    }
  }

  Tensors forward(const Tensors& in) {
    Tensors parts;
    if (in.at(0).size(1) > 0) parts.push_back(in[0]);
    for (size_t i = 0; i < tables_.size(); ++i) {
      parts.push_back(at::embedding(tables_[i]->weight, in.at(1).select(1, static_cast<int64_t>(i))));
    }
    return {at::cat(parts, 1)};
  }

 private:
  std::vector<torch::nn::Embedding> tables_;
};

class HiddenImpl : public torch::nn::LinearImpl {
 public:
  HiddenImpl(int64_t in, int64_t out, double dropout) : LinearImpl(in, out), dropout_(dropout) {}

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor out = at::relu(LinearImpl::forward(in));
    return dropout_ > 0 ? at::dropout(out, dropout_, is_training()) : out;
  }

 private:
  double dropout_;
};

}  // namespace

int64_t embedding_width(int64_t values) { return std::min<int64_t>(50, (values + 1) / 2); }

std::vector<Layer> make_mlp(const ModelRecipe& recipe, const ModelShape& shape) {
  std::vector<Layer> layers;
  int64_t width = shape.floats;
  if (!shape.category_values.empty()) {
    layers.push_back(layer<EmbedImpl>("embed", shape.category_values));
    for (const int64_t values : shape.category_values) width += embedding_width(values);
  }
  for (int64_t i = 1; i <= recipe.layers; ++i) {
    layers.push_back(layer<HiddenImpl>(fmt::format("hidden{}", i), width, recipe.width, recipe.dropout));
    width = recipe.width;
  }
  layers.push_back(layer<torch::nn::LinearImpl>("head", width, shape.outputs));
  return layers;
}

}  // namespace troika

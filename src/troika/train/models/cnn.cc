#include "troika/train/models/cnn.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "troika/train/models/embed.h"

namespace troika {
namespace {

/// [n, in, window], or [n, window, in] for the first one, to [n, width, window].
class ConvImpl : public torch::nn::Module {
 public:
  ConvImpl(int64_t in, int64_t width, double dropout, bool rows_first)
      : dropout_(dropout), rows_first_(rows_first) {
    const auto options = torch::nn::Conv1dOptions(in, width, 3).padding(1).bias(false);
    conv_ = register_module("conv", torch::nn::Conv1d(options));
    norm_ = register_module("norm", torch::nn::BatchNorm1d(width));
  }

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor x = rows_first_ ? in.transpose(1, 2).contiguous() : in;
    const at::Tensor out = at::relu(norm_->forward(conv_->forward(x)));
    return dropout_ > 0 ? at::dropout(out, dropout_, is_training()) : out;
  }

 private:
  double dropout_;
  bool rows_first_;
  torch::nn::Conv1d conv_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
};

class MeanRowImpl : public torch::nn::LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& in) { return LinearImpl::forward(in.mean(2)); }
};

}  // namespace

std::vector<Layer> make_cnn(const ModelRecipe& recipe, const ModelShape& shape) {
  std::vector<Layer> layers;
  int64_t width = add_embed(layers, shape);
  for (int64_t i = 1; i <= recipe.layers; ++i) {
    layers.push_back(layer<ConvImpl>(fmt::format("conv{}", i), width, recipe.width, recipe.dropout, i == 1));
    width = recipe.width;
  }
  layers.push_back(layer<MeanRowImpl>("head", width, shape.outputs));
  return layers;
}

}  // namespace troika

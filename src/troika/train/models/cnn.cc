#include "troika/train/models/cnn.h"

#include <ATen/ops/mean.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include "troika/parallel/tensor/layers.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/train/models/embed.h"

namespace troika {
namespace {

/// [n, in, window], or [n, window, in] for the first one, to [n, width, window].
class ConvImpl : public torch::nn::Module, public Splittable {
 public:
  ConvImpl(int64_t in, int64_t width, double dropout, bool rows_first)
      : dropout_(dropout), rows_first_(rows_first) {
    const auto options = torch::nn::Conv1dOptions(in, width, 3).padding(1).bias(false);
    conv_ = register_module("conv", torch::nn::Conv1d(options));
    norm_ = register_module("norm", torch::nn::BatchNorm1d(width));
  }

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor whole = rows_first_ ? in.transpose(1, 2).contiguous() : in;
    const at::Tensor x = axis_ == nullptr ? whole : to_slices(whole, *axis_);
    return dropout_of(at::relu(norm_->forward(conv_->forward(x))), dropout_, is_training(), channels(),
                      axis_);
  }

  std::vector<SplitWay> ways(int ranks) const override {
    if (channels().size < ranks) return {};
    const int64_t in = conv_->options.in_channels();
    const Cut cut{0, channels().size};
    return {{"channels",
             {},
             channels(),
             {{"conv.weight", cut},
              {"norm.weight", cut},
              {"norm.bias", cut},
              {"norm.running_mean", cut},
              {"norm.running_var", cut}},
             in,
             in}};
  }
  void split(const SplitWay&, TensorAxis& axis) override { axis_ = &axis; }

 private:
  Spread channels() const { return {-2, conv_->options.out_channels()}; }

  double dropout_;
  bool rows_first_;
  TensorAxis* axis_ = nullptr;
  torch::nn::Conv1d conv_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
};

class MeanRowImpl : public troika::LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& in) { return LinearImpl::forward(in.mean(2)); }
  /// The time comes behind the channels.
  std::vector<SplitWay> ways(int ranks) const override {
    std::vector<SplitWay> ways = product_ways(ranks);
    for (SplitWay& way : ways) {
      if (!way.in.is_whole()) way.in.dim = -2;
    }
    return ways;
  }
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

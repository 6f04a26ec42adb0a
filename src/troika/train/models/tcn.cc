#include "troika/train/models/tcn.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <memory>

#include "troika/base/error.h"
#include "troika/train/models/embed.h"

namespace troika {
namespace {

constexpr int64_t kKernel = 3;
constexpr int64_t kNoPadding[] = {0};  // beside the zeros that go before the window

class CausalConvImpl : public torch::nn::Conv1dImpl {
 public:
  CausalConvImpl(int64_t in, int64_t width, int64_t dilation)
      : Conv1dImpl(torch::nn::Conv1dOptions(in, width, kKernel).dilation(dilation)), dilation_(dilation) {}

  /// Zeros go before the window, so that no row sees a later one. What would see nothing but zeros is left
  /// out.
  at::Tensor forward(const at::Tensor& in) {
    const int64_t seen = std::min(kKernel, (in.size(2) - 1) / dilation_ + 1);
    const at::Tensor padded = at::constant_pad_nd(in, {(seen - 1) * dilation_, 0});
    return at::conv1d(padded, weight.narrow(2, kKernel - seen, seen), bias, /*stride=*/1,
                      at::IntArrayRef(kNoPadding), dilation_);
  }

 private:
  int64_t dilation_;
};

/// [n, in, window], or [n, window, in] for the first block, to [n, width, window].
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(int64_t in, int64_t width, int64_t dilation, double dropout, bool rows_first)
      : dropout_(dropout), rows_first_(rows_first) {
    conv1_ = register_module("conv1", std::make_shared<CausalConvImpl>(in, width, dilation));
    conv2_ = register_module("conv2", std::make_shared<CausalConvImpl>(width, width, dilation));
    if (in == width) return;
    downsample_ = register_module("downsample", torch::nn::Conv1d(torch::nn::Conv1dOptions(in, width, 1)));
  }

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor x = rows_first_ ? in.transpose(1, 2).contiguous() : in;
    const at::Tensor out = activate(conv2_->forward(activate(conv1_->forward(x))));
    return at::relu(out + (downsample_ ? downsample_->forward(x) : x));
  }

 private:
  at::Tensor activate(const at::Tensor& in) const {
    const at::Tensor out = at::relu(in);
    return dropout_ > 0 ? at::dropout(out, dropout_, is_training()) : out;
  }

  double dropout_;
  bool rows_first_;
  std::shared_ptr<CausalConvImpl> conv1_;
  std::shared_ptr<CausalConvImpl> conv2_;
  torch::nn::Conv1d downsample_{nullptr};
};

class LastRowImpl : public torch::nn::LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& in) { return LinearImpl::forward(in.select(2, -1)); }
};

}  // namespace

std::vector<Layer> make_tcn(const ModelRecipe& recipe, const ModelShape& shape) {
  constexpr int64_t kMostLayers = 32;
  if (recipe.layers > kMostLayers) {
    fail_usage(
        "model.layers = {}: each layer of a tcn doubles what it sees, and {} see more rows than any "
        "window has; set it to {} or less",
        recipe.layers, kMostLayers, kMostLayers);
  }
  std::vector<Layer> layers;
  int64_t width = add_embed(layers, shape);
  for (int64_t i = 1; i <= recipe.layers; ++i) {
    layers.push_back(layer<BlockImpl>(fmt::format("block{}", i), width, recipe.width, int64_t{1} << (i - 1),
                                      recipe.dropout, i == 1));
    width = recipe.width;
  }
  layers.push_back(layer<LastRowImpl>("head", width, shape.outputs));
  return layers;
}

}  // namespace troika

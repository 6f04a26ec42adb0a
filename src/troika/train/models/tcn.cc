#include "troika/train/models/tcn.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <memory>

#include "troika/base/error.h"
#include "troika/parallel/tensor/layers.h"
#include "troika/parallel/tensor/peer_functions.h"
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
  at::Tensor forward(const at::Tensor& in, const at::Tensor& with_bias) const {
    const int64_t seen = std::min(kKernel, (in.size(2) - 1) / dilation_ + 1);
    const at::Tensor padded = at::constant_pad_nd(in, {(seen - 1) * dilation_, 0});
    return at::conv1d(padded, weight.narrow(2, kKernel - seen, seen), with_bias, /*stride=*/1,
                      at::IntArrayRef(kNoPadding), dilation_);
  }

 private:
  int64_t dilation_;
};

at::Tensor add_bias(const at::Tensor& sum, const at::Tensor& bias) { return sum + bias.unsqueeze(1); }

/// [n, in, window], or [n, window, in] for the first block, to [n, width, window].
class BlockImpl : public torch::nn::Module, public Splittable {
 public:
  BlockImpl(int64_t in, int64_t width, int64_t dilation, double dropout, bool rows_first)
      : in_(in), width_(width), dropout_(dropout), rows_first_(rows_first) {
    conv1_ = register_module("conv1", std::make_shared<CausalConvImpl>(in, width, dilation));
    conv2_ = register_module("conv2", std::make_shared<CausalConvImpl>(width, width, dilation));
    if (in == width) return;
    downsample_ = register_module("downsample", torch::nn::Conv1d(torch::nn::Conv1dOptions(in, width, 1)));
  }

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor x = rows_first_ ? in.transpose(1, 2).contiguous() : in;
    if (axis_ != nullptr) return forward_slices(x, *axis_);
    const at::Tensor inner = activate(conv1_->forward(x, conv1_->bias), {});
    const at::Tensor out = activate(conv2_->forward(inner, conv2_->bias), {});
    return at::relu(out + (downsample_ ? downsample_->forward(x) : x));
  }

  // One sum over the ranks forward, one backward.
  std::vector<SplitWay> ways(int ranks) const override {
    if (width_ < ranks) return {};
    SplitWay way{"channels",
                 {},
                 {},
                 {{"conv1.weight", {0, width_}}, {"conv1.bias", {0, width_}}, {"conv2.weight", {1, width_}}},
                 in_ + width_,
                 in_};
    if (cuts_downsample(ranks)) {
      way.cuts.push_back({"downsample.weight", {1, in_}});
      way.payload += width_;
    }
    return {way};
  }
  void split(const SplitWay&, TensorAxis& axis) override { axis_ = &axis; }

 private:
  bool cuts_downsample(int ranks) const { return downsample_ && in_ >= ranks; }

  at::Tensor activate(const at::Tensor& in, const Spread& spread) const {
    return dropout_of(at::relu(in), dropout_, is_training(), spread, axis_);
  }

  at::Tensor forward_slices(const at::Tensor& whole, TensorAxis& axis) {
    const at::Tensor x = to_slices(whole, axis);
    const at::Tensor inner = activate(conv1_->forward(x, conv1_->bias), {-2, width_});
    const at::Tensor part = conv2_->forward(inner, {});
    if (!cuts_downsample(axis.size())) {
      const at::Tensor out = activate(add_bias(sum_parts(part, axis), conv2_->bias), {});
      return at::relu(out + (downsample_ ? downsample_->forward(whole) : whole));
    }
    const at::Tensor beside = at::conv1d(axis.slice(x, 1), downsample_->weight);
    const auto sums = sum_parts(at::cat({part, beside}, 1), axis).split(width_, 1);
    return at::relu(activate(add_bias(sums[0], conv2_->bias), {}) + add_bias(sums[1], downsample_->bias));
  }

  int64_t in_, width_;
  double dropout_;
  bool rows_first_;
  TensorAxis* axis_ = nullptr;
  std::shared_ptr<CausalConvImpl> conv1_;
  std::shared_ptr<CausalConvImpl> conv2_;
  torch::nn::Conv1d downsample_{nullptr};
};

class LastRowImpl : public troika::LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& in) { return LinearImpl::forward(in.select(2, -1)); }
  std::vector<SplitWay> ways(int ranks) const override {
    std::vector<SplitWay> ways = product_ways(ranks);
    std::erase_if(ways, [](const SplitWay& way) { return !way.in.is_whole(); });  // blocks give it whole
    return ways;
  }
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

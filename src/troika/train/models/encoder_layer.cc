#include "troika/train/models/encoder_layer.h"

#include <ATen/ops/gelu.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>

#include <memory>

#include "troika/base/error.h"
#include "troika/parallel/tensor/attention.h"
#include "troika/parallel/tensor/layers.h"

namespace troika {
namespace {

// By heads: attention's, and the inner width; two sums over the ranks forward, and two backward.
class EncoderLayerImpl : public torch::nn::Module, public Splittable {
 public:
  explicit EncoderLayerImpl(const EncoderLayerOptions& options) : options_(options) {
    attention_ =
        register_module("self_attn", std::make_shared<MultiheadAttentionImpl>(AttentionOptions{
                                         options.width, options.heads, 0, options.dropout, options.causal}));
    linear1_ = register_module("linear1", ColumnLinear(options.width, options.inner));
    linear2_ = register_module("linear2", RowLinear(options.inner, options.width));
    const torch::nn::LayerNormOptions norm({options.width});
    norm1_ = register_module("norm1", torch::nn::LayerNorm(norm));
    norm2_ = register_module("norm2", torch::nn::LayerNorm(norm));
  }

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor normed = norm1_->forward(in);
    const at::Tensor x = options_.token
                             ? in.select(1, *options_.token) +
                                   drop(attention_->forward_token(normed, *options_.token).squeeze(1))
                             : in + drop(attention_->forward(normed));
    const at::Tensor inner = dropout_of(at::gelu(linear1_->forward(norm2_->forward(x))), options_.dropout,
                                        is_training(), {-1, options_.inner}, axis_);
    return x + drop(linear2_->forward(inner));
  }

  std::vector<SplitWay> ways(int ranks) const override {
    SplitWay all{"heads", {}, {}, {}, 0, 0};
    for (const Part& part : parts()) {
      const std::vector<SplitWay> ways = part.module->ways(ranks);
      if (ways.empty()) return {};
      for (CutTensor& cut : with_prefix(part.name, ways[0].cuts)) all.cuts.push_back(std::move(cut));
      all.payload += ways[0].payload;
    }
    return {all};
  }

  std::string why_whole(int ranks) const override {
    return options_.heads < ranks ? attention_->why_whole(ranks) : Splittable::why_whole(ranks);
  }

  void split(const SplitWay&, TensorAxis& axis) override {
    for (const Part& part : parts()) part.module->split(part.module->ways(axis.size())[0], axis);
    axis_ = &axis;
  }

 private:
  struct Part {
    const char* name;
    Splittable* module;
  };
  std::vector<Part> parts() const {
    return {{"self_attn", attention_.get()},
            {"linear1", linear1_.ptr().get()},
            {"linear2", linear2_.ptr().get()}};
  }

  at::Tensor drop(const at::Tensor& x) const {
    return dropout_of(x, options_.dropout, is_training(), {}, nullptr);
  }

  EncoderLayerOptions options_;
  TensorAxis* axis_ = nullptr;
  std::shared_ptr<MultiheadAttentionImpl> attention_;
  ColumnLinear linear1_{nullptr};
  RowLinear linear2_{nullptr};
  torch::nn::LayerNorm norm1_{nullptr};
  torch::nn::LayerNorm norm2_{nullptr};
};

}  // namespace

Layer encoder_layer(std::string name, const EncoderLayerOptions& options) {
  TROIKA_ASSERT(!options.causal || !options.token, "a causal block computes every token");
  return layer<EncoderLayerImpl>(std::move(name), options);
}

}  // namespace troika

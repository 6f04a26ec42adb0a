#include "troika/train/models/encoder_layer.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>

#include <memory>

#include "troika/base/error.h"
#include "troika/parallel/tensor/attention.h"
#include "troika/parallel/tensor/layers.h"
#include "troika/parallel/tensor/peer_functions.h"

namespace troika {
namespace {

constexpr char kHeadsAndTokens[] = "heads and tokens";

// By heads: attention's, and the inner width; two sums over the ranks forward, and two backward. By heads and
// tokens: besides, the ranks share out the tokens that norms, dropout and sums are about, which keeps less of
// them in memory and moves as much (Korthikanti et al., 2022, arXiv:2205.05198).
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
    if (spread_.dim) return forward_tokens(takes_whole_ ? take_slice(in, -2, *axis_) : in, *axis_);
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
      add_part(all, part.name, ways[0]);
    }
    if (options_.token || options_.tokens < ranks) return {all};
    const Spread tokens{-2, options_.tokens};
    const int64_t longest = share({0, options_.width}, ranks, 0).size();
    SplitWay with_tokens{kHeadsAndTokens, tokens, tokens, all.cuts, all.payload + 4 * longest, 0, true};
    SplitWay from_whole = with_tokens;
    from_whole.in = {};
    from_whole.payload += longest;
    from_whole.payload_for_input = longest;
    return {all, with_tokens, from_whole};
  }

  std::string why_whole(int ranks) const override {
    return options_.heads < ranks ? attention_->why_whole(ranks) : Splittable::why_whole(ranks);
  }

  void split(const SplitWay& way, TensorAxis& axis) override {
    for (const Part& part : parts()) part.module->split(part.module->ways(axis.size())[0], axis);
    axis_ = &axis;
    spread_ = way.out;
    takes_whole_ = way.in.is_whole();
  }

 private:
  /// This rank's tokens in and out. What all ranks add to or multiply their tokens with has the sum of their
  /// gradients.
  at::Tensor forward_tokens(const at::Tensor& in, TensorAxis& axis) {
    const auto norm = [&](const torch::nn::LayerNorm& by, const at::Tensor& x) {
      return at::layer_norm(x, {options_.width}, to_slices(by->weight, axis), to_slices(by->bias, axis),
                            by->options.eps());
    };
    const auto all_tokens = [&](const at::Tensor& x) {
      return gather_for_slices(x, -2, options_.tokens, axis);
    };
    const auto add_up = [&](const at::Tensor& part, const at::Tensor& bias) {
      const at::Tensor sum = sum_parts_to_slices(part, -2, axis) + to_slices(bias, axis);
      return dropout_of(sum, options_.dropout, is_training(), spread_, axis_);
    };
    const at::Tensor x =
        in + add_up(attention_->forward_part(all_tokens(norm(norm1_, in))), attention_->out_bias());
    const at::Tensor inner =
        dropout_of(at::gelu(at::linear(all_tokens(norm(norm2_, x)), linear1_->weight, linear1_->bias)),
                   options_.dropout, is_training(), {-1, options_.inner}, axis_);
    return x + add_up(at::linear(inner, linear2_->weight), linear2_->bias);
  }

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
  Spread spread_;
  bool takes_whole_ = true;
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

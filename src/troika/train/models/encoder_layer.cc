#include "troika/train/models/encoder_layer.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <memory>

#include "troika/base/error.h"

namespace troika {
namespace {

/// [n, tokens, width] to [n, heads, tokens, width / heads], as a view.
at::Tensor by_head(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

class SelfAttentionImpl : public torch::nn::Module {
 public:
  explicit SelfAttentionImpl(const EncoderLayerOptions& options) : options_(options) {
    const int64_t width = options.width;
    in_weight_ = register_parameter("in_proj_weight", at::empty({3 * width, width}));
    in_bias_ = register_parameter("in_proj_bias", at::zeros({3 * width}));
    out_ = register_module("out_proj", torch::nn::Linear(width, width));
    torch::nn::init::xavier_uniform_(in_weight_);
    torch::nn::init::zeros_(out_->bias);
  }

  /// Every token asks every token, or those up to itself.
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = at::linear(x, in_weight_, in_bias_).split(options_.width, 2);
    return attend(parts[0], parts[1], parts[2]);
  }

  /// One token asks every token: [n, 1, width].
  at::Tensor forward(const at::Tensor& x, int64_t token) {
    const int64_t width = options_.width;
    const at::Tensor asking = x.select(1, token);
    const at::Tensor query = at::linear(asking, in_weight_.narrow(0, 0, width), in_bias_.narrow(0, 0, width));
    const auto parts =
        at::linear(x, in_weight_.narrow(0, width, 2 * width), in_bias_.narrow(0, width, 2 * width))
            .split(width, 2);
    return attend(query.unsqueeze(1), parts[0], parts[1]);
  }

 private:
  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
    const int64_t heads = options_.heads;
    const at::Tensor seen =
        at::scaled_dot_product_attention(by_head(query, heads), by_head(key, heads), by_head(value, heads),
                                         {}, is_training() ? options_.dropout : 0, options_.causal);
    return out_->forward(seen.transpose(1, 2).reshape({query.size(0), query.size(1), options_.width}));
  }

  EncoderLayerOptions options_;
  at::Tensor in_weight_;
  at::Tensor in_bias_;
  torch::nn::Linear out_{nullptr};
};

class EncoderLayerImpl : public torch::nn::Module {
 public:
  explicit EncoderLayerImpl(const EncoderLayerOptions& options) : options_(options) {
    attention_ = register_module("self_attn", std::make_shared<SelfAttentionImpl>(options));
    linear1_ = register_module("linear1", torch::nn::Linear(options.width, options.inner));
    linear2_ = register_module("linear2", torch::nn::Linear(options.inner, options.width));
    const torch::nn::LayerNormOptions norm({options.width});
    norm1_ = register_module("norm1", torch::nn::LayerNorm(norm));
    norm2_ = register_module("norm2", torch::nn::LayerNorm(norm));
  }

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor normed = norm1_->forward(in);
    const at::Tensor x = options_.token ? in.select(1, *options_.token) +
                                              drop(attention_->forward(normed, *options_.token).squeeze(1))
                                        : in + drop(attention_->forward(normed));
    const at::Tensor inner = drop(at::gelu(linear1_->forward(norm2_->forward(x))));
    return x + drop(linear2_->forward(inner));
  }

 private:
  at::Tensor drop(const at::Tensor& x) const {
    return options_.dropout > 0 ? at::dropout(x, options_.dropout, is_training()) : x;
  }

  EncoderLayerOptions options_;
  std::shared_ptr<SelfAttentionImpl> attention_;
  torch::nn::Linear linear1_{nullptr};
  torch::nn::Linear linear2_{nullptr};
  torch::nn::LayerNorm norm1_{nullptr};
  torch::nn::LayerNorm norm2_{nullptr};
};

}  // namespace

Layer encoder_layer(std::string name, const EncoderLayerOptions& options) {
  TROIKA_ASSERT(!options.causal || !options.token, "a causal block computes every token");
  return layer<EncoderLayerImpl>(std::move(name), options);
}

}  // namespace troika

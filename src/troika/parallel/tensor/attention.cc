#include "troika/parallel/tensor/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>

#include "troika/base/error.h"
#include "troika/parallel/noise_slice.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/parallel/tensor/split_linear.h"

namespace troika {
namespace {

/// [n, tokens, heads * size] to [n, heads, tokens, size], as a view.
at::Tensor by_head(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

AttentionOptions checked(AttentionOptions options) {
  if (options.key_heads == 0) options.key_heads = options.heads;
  if (options.heads < 1 || options.width % options.heads != 0)
    fail_usage("attention of width {} can't be shared out among {} heads: use a divisor of the width",
               options.width, options.heads);
  if (options.key_heads < 1 || options.heads % options.key_heads != 0)
    fail_usage("{} heads can't share {} heads of keys and values: use a divisor of the heads", options.heads,
               options.key_heads);
  return options;
}

}  // namespace

MultiheadAttentionImpl::MultiheadAttentionImpl(const AttentionOptions& options) : options_(checked(options)) {
  const int64_t width = options_.width;
  const int64_t rows = width + 2 * options_.key_heads * (width / options_.heads);
  in_weight_ = register_parameter("in_proj_weight", at::empty({rows, width}));
  in_bias_ = register_parameter("in_proj_bias", at::zeros({rows}));
  out_ = register_module("out_proj", torch::nn::Linear(width, width));
  torch::nn::init::xavier_uniform_(in_weight_);
  torch::nn::init::zeros_(out_->bias);
}

// Heads of keys are shared out, each with the queries that ask it.
std::vector<SplitWay> MultiheadAttentionImpl::ways(int ranks) const {
  const int64_t units = options_.key_heads, width = options_.width;
  if (units < ranks) return {};
  const int64_t size = width / options_.heads, queries = width / units;
  const Cut in{0, units, {queries, size, size}};
  return {{"heads",
           {},
           {},
           {{"in_proj_weight", in}, {"in_proj_bias", in}, {"out_proj.weight", {1, units, {queries}}}},
           2 * width,
           width}};
}

std::string MultiheadAttentionImpl::why_whole(int ranks) const {
  return fmt::format("{} heads{} can't be split over {} ranks", options_.key_heads,
                     options_.key_heads < options_.heads ? " of keys and values" : "", ranks);
}

MultiheadAttentionImpl::Heads MultiheadAttentionImpl::heads_here() const {
  const int64_t keys = axis_ == nullptr ? options_.key_heads : axis_->my_share(options_.key_heads).size();
  return {keys * (options_.heads / options_.key_heads), keys, options_.width / options_.heads};
}

at::Tensor MultiheadAttentionImpl::forward(const at::Tensor& x) {
  return project(attend(axis_ == nullptr ? at::linear(x, in_weight_, in_bias_)
                                         : linear_by_columns(x, in_weight_, in_bias_, *axis_)));
}

at::Tensor MultiheadAttentionImpl::forward_part(const at::Tensor& x) {
  return at::linear(attend(at::linear(x, in_weight_, in_bias_)), out_->weight);
}

at::Tensor MultiheadAttentionImpl::attend(const at::Tensor& all) {
  const Heads here = heads_here();
  const auto parts =
      all.split_with_sizes({here.queries * here.size, here.keys * here.size, here.keys * here.size}, 2);
  return attend(parts[0], parts[1], parts[2]);
}

at::Tensor MultiheadAttentionImpl::forward_token(const at::Tensor& whole, int64_t token) {
  const Heads here = heads_here();
  const at::Tensor x = axis_ == nullptr ? whole : to_slices(whole, *axis_);
  const int64_t queries = here.queries * here.size, keys = here.keys * here.size;
  const at::Tensor query =
      at::linear(x.select(1, token), in_weight_.narrow(0, 0, queries), in_bias_.narrow(0, 0, queries));
  const auto parts =
      at::linear(x, in_weight_.narrow(0, queries, 2 * keys), in_bias_.narrow(0, queries, 2 * keys))
          .split(keys, 2);
  return project(attend(query.unsqueeze(1), parts[0], parts[1]));
}

at::Tensor MultiheadAttentionImpl::attend(const at::Tensor& query, const at::Tensor& key,
                                          const at::Tensor& value) {
  const Heads here = heads_here();
  at::Tensor seen;
  {
    std::optional<NoiseSliceScope> slice;
    if (axis_ != nullptr) {
      const Range keys = axis_->my_share(options_.key_heads);
      const int64_t group = options_.heads / options_.key_heads;
      slice.emplace(-3, Range{keys.begin * group, keys.end * group}, options_.heads);
    }
    seen = at::scaled_dot_product_attention(
        by_head(query, here.queries), by_head(key, here.keys), by_head(value, here.keys), {},
        is_training() ? options_.dropout : 0, options_.causal, {}, options_.key_heads < options_.heads);
  }
  return seen.transpose(1, 2).reshape({query.size(0), query.size(1), here.queries * here.size});
}

at::Tensor MultiheadAttentionImpl::project(const at::Tensor& seen) {
  return axis_ == nullptr ? out_->forward(seen) : linear_by_rows(seen, out_->weight, out_->bias, *axis_);
}

}  // namespace troika

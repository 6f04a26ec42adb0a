// Multi-head self-attention that can be split over the tensor axis by heads: each rank has the query, key and
// value rows and the output columns of its heads, so a forward costs one sum, and so does a backward (Shoeybi
// et al., 2019, arXiv:1909.08053). Parameters have the names of torch::nn::MultiheadAttention. With fewer
// heads of keys and values than of queries, several queries share one (Ainslie et al., 2023,
// arXiv:2305.13245). Threading: as torch's modules.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "troika/parallel/tensor/splittable.h"

namespace troika {

struct AttentionOptions {
  int64_t width = 0;  // of a token; divisible by heads
  int64_t heads = 1;
  int64_t key_heads = 0;  // of keys and values: a divisor of heads; 0: as many as heads
  double dropout = 0;     // of the probabilities
  bool causal = false;    // a token asks only itself and those before it
};

/// Unlike torch's its input is [samples, tokens, width], and it gives the tokens only.
class MultiheadAttentionImpl : public torch::nn::Module, public Splittable {
 public:
  /// Throws UsageError for heads that don't fit.
  explicit MultiheadAttentionImpl(const AttentionOptions& options);

  /// Every token asks every token, or those up to itself.
  at::Tensor forward(const at::Tensor& x);
  /// One token asks every token: [samples, 1, width].
  at::Tensor forward_token(const at::Tensor& x, int64_t token);

  /// Of all tokens, on this rank's heads: its part of the sum that forward() is, without out_bias().
  at::Tensor forward_part(const at::Tensor& x);
  const at::Tensor& out_bias() const { return out_->bias; }

  std::vector<SplitWay> ways(int ranks) const override;
  std::string why_whole(int ranks) const override;
  void split(const SplitWay&, TensorAxis& axis) override { axis_ = &axis; }

 private:
  /// What this rank has.
  struct Heads {
    int64_t queries, keys, size;
  };
  Heads heads_here() const;
  /// Of queries, keys and values, one beside the other.
  at::Tensor attend(const at::Tensor& all);
  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);
  at::Tensor project(const at::Tensor& seen);

  AttentionOptions options_;
  TensorAxis* axis_ = nullptr;
  at::Tensor in_weight_;
  at::Tensor in_bias_;
  torch::nn::Linear out_{nullptr};
};
TORCH_MODULE(MultiheadAttention);

}  // namespace troika

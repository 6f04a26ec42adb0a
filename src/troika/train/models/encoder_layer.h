// The block that transformers are made of, as torch::nn::TransformerEncoderLayer with norm first and GELU,
// under its parameters' names and with its initial numbers. Attention runs on contiguous samples without a
// copy per head. Sources: Vaswani et al., 2017, arxiv.org/abs/1706.03762; Xiong et al., 2020,
// arxiv.org/abs/2002.04745. Threading: pure function; the layer is a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troika/parallel/layer.h"

namespace troika {

struct EncoderLayerOptions {
  int64_t width = 0;  // of a token; divisible by heads
  int64_t heads = 1;
  int64_t inner = 0;  // width of the feed-forward part
  double dropout = 0;
  /// If only this token of the result is read (-1: the last), only it is computed, which spares most of the
  /// block.
  std::optional<int64_t> token;
  /// A token asks only itself and those before it. Not together with `token`.
  bool causal = false;
  int64_t tokens = 0;  // of a sample; 0: they differ
};

/// [n, tokens, width] to the same shape, or to [n, width] with `token`.
Layer encoder_layer(std::string name, const EncoderLayerOptions& options);

}  // namespace troika

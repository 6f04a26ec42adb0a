// transformer: an encoder for windows and for tables. "tokens", then `layers` blocks "block1", ... of
// encoder_layer.h with a feed-forward part of 4 x width, then a LayerNorm "norm" of the token that is read,
// and a linear "head".
//
//   window: a row is a token: torch::nn::Linear "linear" of its numbers + torch::nn::Embedding "position",
//   which
//           begins small (deviation 0.02); the last row is read. Categories are embedded first (embed.h).
//   table:  a float input is a token: x * weight[i] + bias[i]; a category input is one, the row of its
//           torch::nn::Embedding "category<i>"; one more, "leading", goes before them and is read.
//           Gorishniy et al., 2021, arxiv.org/abs/2106.11959.
#pragma once

#include "troika/train/models/registry.h"

namespace troika {

/// Heads of attention: the recipe's, or one for each 16 of width. Throws UsageError if they can't share the
/// width.
int64_t heads_of(const ModelRecipe& recipe);

/// Throws UsageError if the heads don't divide the width, and for a table without a block.
std::vector<Layer> make_transformer(const ModelRecipe& recipe, const ModelShape& shape);

}  // namespace troika

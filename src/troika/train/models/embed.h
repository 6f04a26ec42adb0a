// Categories as numbers that are learned, beside the float inputs: layer "embed", with a torch::nn::Embedding
// "category0", "category1", ... for each category input (Guo and Berkhahn, 2016, arxiv.org/abs/1604.06737).
// Threading: pure functions; the layers are values.
#pragma once

#include "troika/train/models/registry.h"

namespace troika {

/// Numbers per value of a category: half as many as it has values, at most 50.
int64_t embedding_width(int64_t values);

/// Appends the layer if there are categories: {floats [..., f], categories [..., c]} becomes {[..., w]}, with
/// the floats first. Returns w, the numbers that a row has then.
int64_t add_embed(std::vector<Layer>& layers, const ModelShape& shape);

}  // namespace troika

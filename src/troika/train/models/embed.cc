#include "troika/train/models/embed.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>

namespace troika {
namespace {

class EmbedImpl : public torch::nn::Module {
 public:
  explicit EmbedImpl(const std::vector<int64_t>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      tables_.push_back(register_module(fmt::format("category{}", i),
                                        torch::nn::Embedding(values[i], embedding_width(values[i]))));
    }
  }

  Tensors forward(const Tensors& in) {
    Tensors parts;
    if (in.at(0).size(-1) > 0) parts.push_back(in[0]);
    for (size_t i = 0; i < tables_.size(); ++i) {
      parts.push_back(at::embedding(tables_[i]->weight, in.at(1).select(-1, static_cast<int64_t>(i))));
    }
    return {at::cat(parts, -1)};
  }

 private:
  std::vector<torch::nn::Embedding> tables_;
};

}  // namespace

int64_t embedding_width(int64_t values) { return std::min<int64_t>(50, (values + 1) / 2); }

int64_t add_embed(std::vector<Layer>& layers, const ModelShape& shape) {
  int64_t width = shape.floats;
  if (shape.category_values.empty()) return width;
  layers.push_back(layer<EmbedImpl>("embed", shape.category_values));
  for (const int64_t values : shape.category_values) width += embedding_width(values);
  return width;
}

}  // namespace troika

#include "troika/parallel/tensor/torch_rules.h"

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "troika/parallel/tensor/layers.h"

namespace troika {
namespace {

template <typename To>
const To& as(const torch::nn::Module& module) {
  return dynamic_cast<const To&>(module);
}

}  // namespace

std::vector<SplitWay> linear_ways(const torch::nn::Module& module, int ranks) {
  const auto& options = as<torch::nn::LinearImpl>(module).options;
  return SplitProduct::ways(options.in_features(), options.out_features(), options.bias(), ranks);
}

ForwardFunction split_linear_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis) {
  SplitProduct product;
  product.split(way, axis);
  const auto linear = std::dynamic_pointer_cast<torch::nn::LinearImpl>(module);
  return [linear, product](const Tensors& in) -> Tensors {
    return {product(in.at(0), linear->weight, linear->bias)};
  };
}

std::vector<SplitWay> embedding_ways(const torch::nn::Module& module, int ranks) {
  const auto& options = as<torch::nn::EmbeddingImpl>(module).options;
  if (options.max_norm() || options.sparse()) return {};
  return SplitTable::ways(options.num_embeddings(), options.embedding_dim(), ranks);
}

ForwardFunction split_embedding_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis) {
  SplitTable table;
  table.split(way, axis);
  const auto embedding = std::dynamic_pointer_cast<torch::nn::EmbeddingImpl>(module);
  return [embedding, table](const Tensors& in) -> Tensors {
    return {table(in.at(0), embedding->weight, embedding->options.padding_idx().value_or(-1))};
  };
}

}  // namespace troika

#include "troika/train/models/embed.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "troika/parallel/tensor/layers.h"

namespace troika {
namespace {

class EmbedImpl : public torch::nn::Module, public Splittable {
 public:
  explicit EmbedImpl(const std::vector<int64_t>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      tables_.push_back(register_module(fmt::format("category{}", i),
                                        troika::Embedding(values[i], embedding_width(values[i]))));
    }
  }

  Tensors forward(const Tensors& in) {
    Tensors parts;
    if (in.at(0).size(-1) > 0) parts.push_back(in[0]);
    for (size_t i = 0; i < tables_.size(); ++i) {
      parts.push_back(tables_[i]->forward(in.at(1).select(-1, static_cast<int64_t>(i))));
    }
    return {at::cat(parts, -1)};
  }

  // Tables with fewer values than ranks are whole.
  std::vector<SplitWay> ways(int ranks) const override {
    SplitWay all{"vocabulary", {}, {}, {}, 0, 0};
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (const auto way = by_values(i, ranks)) add_part(all, fmt::format("category{}", i), *way);
    }
    return all.cuts.empty() ? std::vector<SplitWay>{} : std::vector<SplitWay>{all};
  }
  void split(const SplitWay&, TensorAxis& axis) override {
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (const auto way = by_values(i, axis.size())) tables_[i]->split(*way, axis);
    }
  }

 private:
  std::optional<SplitWay> by_values(size_t table, int ranks) const {
    for (const SplitWay& way : tables_[table]->ways(ranks)) {
      if (way.out.is_whole()) return way;
    }
    return std::nullopt;
  }

  std::vector<troika::Embedding> tables_;
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

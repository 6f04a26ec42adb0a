#include "troika/train/models/recurrent.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <cmath>
#include <string>

#include "troika/base/error.h"
#include "troika/parallel/tensor/layers.h"
#include "troika/parallel/tensor/recurrent.h"
#include "troika/train/models/embed.h"

namespace troika {
namespace {

using Cell = RecurrentCell;

/// [n, window, in] to the states [n, window, width].
class RecurrentImpl : public torch::nn::Module, public Splittable {
 public:
  RecurrentImpl(Cell cell, int64_t in, int64_t width, double dropout)
      : shape_{cell, in, width, 1, true, true, false, 0}, dropout_(dropout) {
    const int64_t gates = (cell == Cell::lstm ? 4 : 3) * width;
    add("weight_ih_l0", {gates, in});
    add("weight_hh_l0", {gates, width});
    add("bias_ih_l0", {gates});
    add("bias_hh_l0", {gates});
  }

  at::Tensor forward(const at::Tensor& in) {
    const at::Tensor out = states(in);
    return dropout_ > 0 ? at::dropout(out, dropout_, is_training()) : out;
  }

  std::vector<SplitWay> ways(int ranks) const override { return recurrent_ways(shape_, ranks); }
  void split(const SplitWay&, TensorAxis& axis) override { axis_ = &axis; }

 private:
  /// With the initial numbers of torch's own module.
  void add(const char* name, at::IntArrayRef shape) {
    const double bound = 1 / std::sqrt(static_cast<double>(shape_.units));
    at::Tensor weights = at::empty(shape);
    weights.uniform_(-bound, bound);
    weights_.push_back(register_parameter(name, weights));
  }

  at::Tensor states(const at::Tensor& in) const {
    if (axis_ != nullptr) return split_recurrent(shape_, in, weights_, is_training(), *axis_);
    const at::Tensor zero = at::zeros({1, in.size(0), shape_.units}, in.options());
    switch (shape_.cell) {
      case Cell::lstm:
        return std::get<0>(
            at::lstm(in, {zero, zero}, weights_, true, 1, 0.0, is_training(), false, /*batch_first=*/true));
      case Cell::gru:
        return std::get<0>(
            at::gru(in, zero, weights_, true, 1, 0.0, is_training(), false, /*batch_first=*/true));
    }
    return {};
  }

  RecurrentShape shape_;
  double dropout_;
  Tensors weights_;
  TensorAxis* axis_ = nullptr;
};

class LastStateImpl : public troika::LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  std::vector<SplitWay> ways(int ranks) const override { return product_ways(ranks); }
  at::Tensor forward(const at::Tensor& in) { return LinearImpl::forward(in.select(1, -1)); }
};

std::vector<Layer> make_recurrent(Cell cell, const ModelRecipe& recipe, const ModelShape& shape) {
  if (recipe.dropout > 0 && recipe.layers == 1) {
    fail_usage(
        "model.dropout = {} acts between the layers of model.type \"{}\", and model.layers = 1 leaves it no "
        "place; set "
        "model.layers to 2 or more, or leave model.dropout out",
        recipe.dropout, recipe.type);
  }
  std::vector<Layer> layers;
  int64_t width = add_embed(layers, shape);
  for (int64_t i = 1; i <= recipe.layers; ++i) {
    const double dropout = i < recipe.layers ? recipe.dropout : 0;
    layers.push_back(layer<RecurrentImpl>(fmt::format("{}{}", cell == Cell::lstm ? "lstm" : "gru", i), cell,
                                          width, recipe.width, dropout));
    width = recipe.width;
  }
  layers.push_back(layer<LastStateImpl>("head", width, shape.outputs));
  return layers;
}

}  // namespace

std::vector<Layer> make_lstm(const ModelRecipe& recipe, const ModelShape& shape) {
  return make_recurrent(Cell::lstm, recipe, shape);
}

std::vector<Layer> make_gru(const ModelRecipe& recipe, const ModelShape& shape) {
  return make_recurrent(Cell::gru, recipe, shape);
}

}  // namespace troika

// torch's layers with the same constructors, parameters and numbers, that can be split over the tensor axis
// also where they stand in a user's own forward. Not split, they are torch's, to the bit.
//
//   struct Feed : torch::nn::Module {               // one sum over the ranks for both
//     troika::ColumnLinear up{64, 256};             // whole in, a slice of the outputs out
//     troika::RowLinear down{256, 64};              // a slice in, whole out
//     at::Tensor forward(at::Tensor x) { return down(at::gelu(up(x))); }  // constructor: register_module
//   };
//
// Threading: as torch's modules.
#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "troika/parallel/tensor/splittable.h"

namespace troika {

/// A product with a weight matrix [out, in] of which this rank may have a slice. A value.
class SplitProduct {
 public:
  static std::vector<SplitWay> ways(int64_t in, int64_t out, bool bias, int ranks);
  void split(const SplitWay& way, TensorAxis& axis);
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;

  /// How its outputs are spread, and over which ranks (null: not split).
  const Spread& out() const { return out_; }
  TensorAxis* axis() const { return axis_; }

 private:
  TensorAxis* axis_ = nullptr;
  bool by_rows_ = false, takes_whole_ = true;
  Spread out_;
};

/// Whole in and out, wherever it stands; in a list of layers slices go in or out where that saves a message.
class LinearImpl : public torch::nn::LinearImpl, public Splittable {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& x) { return product_(x, weight, bias); }
  /// A derived class gets whole tensors in and out, unless it overrides this with product_ways(): then what
  /// it does with forward's output is elementwise.
  std::vector<SplitWay> ways(int ranks) const override;
  void split(const SplitWay& way, TensorAxis& axis) override { product_.split(way, axis); }

 protected:
  std::vector<SplitWay> product_ways(int ranks) const;
  /// Of forward's output.
  at::Tensor drop(const at::Tensor& x, double p) const {
    return dropout_of(x, p, is_training(), product_.out(), product_.axis());
  }

 private:
  SplitProduct product_;
};
TORCH_MODULE(Linear);

/// Whole in; each rank has a slice of the outputs, for elementwise work and then a RowLinear.
class ColumnLinearImpl : public LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  std::vector<SplitWay> ways(int ranks) const override;
};
TORCH_MODULE(ColumnLinear);

/// Each rank has a slice of the inputs; whole out.
class RowLinearImpl : public LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  std::vector<SplitWay> ways(int ranks) const override;
};
TORCH_MODULE(RowLinear);

/// A table of which this rank may have a slice: of the rows (vocabulary) or of the columns. A value.
class SplitTable {
 public:
  static std::vector<SplitWay> ways(int64_t values, int64_t width, int ranks);
  void split(const SplitWay& way, TensorAxis& axis);
  at::Tensor operator()(const at::Tensor& codes, const at::Tensor& weight, int64_t padding = -1) const;

 private:
  TensorAxis* axis_ = nullptr;
  bool by_values_ = false;
  int64_t values_ = 0;
};

/// Without max_norm and sparse gradients.
class EmbeddingImpl : public torch::nn::EmbeddingImpl, public Splittable {
 public:
  using torch::nn::EmbeddingImpl::EmbeddingImpl;
  at::Tensor forward(const at::Tensor& codes);
  std::vector<SplitWay> ways(int ranks) const override;
  void split(const SplitWay& way, TensorAxis& axis) override { table_.split(way, axis); }

 private:
  SplitTable table_;
};
TORCH_MODULE(Embedding);

}  // namespace troika

// LSTM and GRU that can be split over the tensor axis by hidden units: each rank has its units' rows of all
// gates. A time step's states are put together for the next one; a cell's state never leaves its rank.
// Sources: Hochreiter and Schmidhuber, 1997, doi.org/10.1162/neco.1997.9.8.1735; Cho et al., 2014,
// arXiv:1406.1078. Threading: as torch's modules; the pass is collective over the axis.
#pragma once

#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include "troika/parallel/tensor/splittable.h"

namespace troika {

enum class RecurrentCell { lstm, gru };

/// What torch's recurrent modules have as options.
struct RecurrentShape {
  RecurrentCell cell = RecurrentCell::lstm;
  int64_t in = 0, units = 0;
  int64_t layers = 1;
  bool bias = true, batch_first = false, bidirectional = false;
  double dropout = 0;  // between layers
};

/// By hidden units, for parameters called as torch's are.
std::vector<SplitWay> recurrent_ways(const RecurrentShape& shape, int ranks);

/// The states [time, n, directions * units] (or batch first) of slices of the weights, in the order of
/// torch's: input, state and their biases, if any, for each direction of each layer. Whole in and out.
at::Tensor split_recurrent(const RecurrentShape& shape, const at::Tensor& in,
                           const std::vector<at::Tensor>& weights, bool training, TensorAxis& axis);

/// torch's LSTM as a layer: the states of all time steps, whole. Not split, it is torch's, to the bit.
class LSTMImpl : public torch::nn::LSTMImpl, public Splittable {
 public:
  using torch::nn::LSTMImpl::LSTMImpl;
  at::Tensor forward(const at::Tensor& in);
  std::vector<SplitWay> ways(int ranks) const override;
  std::string why_whole(int ranks) const override;
  void split(const SplitWay&, TensorAxis& axis) override { axis_ = &axis; }

 private:
  TensorAxis* axis_ = nullptr;
};
TORCH_MODULE(LSTM);

/// The same of torch's GRU.
class GRUImpl : public torch::nn::GRUImpl, public Splittable {
 public:
  using torch::nn::GRUImpl::GRUImpl;
  at::Tensor forward(const at::Tensor& in);
  std::vector<SplitWay> ways(int ranks) const override;
  std::string why_whole(int ranks) const override;
  void split(const SplitWay&, TensorAxis& axis) override { axis_ = &axis; }

 private:
  TensorAxis* axis_ = nullptr;
};
TORCH_MODULE(GRU);

}  // namespace troika

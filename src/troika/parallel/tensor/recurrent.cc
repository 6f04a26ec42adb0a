#include "troika/parallel/tensor/recurrent.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "troika/parallel/tensor/peer_functions.h"
#include "troika/parallel/tensor/split_linear.h"

namespace troika {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t gates_of(RecurrentCell cell) { return cell == RecurrentCell::lstm ? 4 : 3; }

/// As join_slices() along the last dimension, of slices that have been put together already.
class Joined : public torch::autograd::Function<Joined> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor&, const at::Tensor& whole,
                            TensorAxis* axis) {
    context->saved_data["axis"] = reinterpret_cast<int64_t>(axis);
    return whole.detach();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& axis = *reinterpret_cast<TensorAxis*>(context->saved_data["axis"].toInt());
    return {axis.slice(gradients[0], -1).contiguous(), {}, {}};
  }
};

/// One direction of one layer.
struct Weights {
  at::Tensor input, state, input_bias, state_bias;
};

/// This rank's units after a time step; `cell` is an LSTM's, and stays here.
struct Units {
  at::Tensor state, cell;
};

Units lstm_step(const at::Tensor& from_input, const at::Tensor& from_state, const Units& before) {
  const auto gates = (from_input + from_state).chunk(4, 1);  // input, forget, cell, output
  const at::Tensor cell = at::sigmoid(gates[1]) * before.cell + at::sigmoid(gates[0]) * at::tanh(gates[2]);
  return {at::sigmoid(gates[3]) * at::tanh(cell), cell};
}

Units gru_step(const at::Tensor& from_input, const at::Tensor& from_state, const Units& before) {
  const auto in = from_input.chunk(3, 1), own = from_state.chunk(3, 1);  // reset, update, new
  const at::Tensor reset = at::sigmoid(in[0] + own[0]), update = at::sigmoid(in[1] + own[1]);
  const at::Tensor fresh = at::tanh(in[2] + reset * own[2]);
  return {(before.state - fresh) * update + fresh, {}};
}

/// From the whole input [time, n, in] the whole states [time, n, units].
at::Tensor run_direction(const RecurrentShape& shape, const at::Tensor& in, const Weights& weights,
                         bool backwards, TensorAxis& axis) {
  const int64_t times = in.size(0);
  const auto from_input = linear_by_columns(in, weights.input, weights.input_bias, axis).unbind(0);
  const at::Tensor zero = at::zeros({in.size(1), axis.my_share(shape.units).size()}, in.options());
  Units units{zero, zero};
  at::Tensor whole = at::zeros({in.size(1), shape.units}, in.options());
  std::vector<at::Tensor> slices(static_cast<size_t>(times)), states(slices.size());
  for (int64_t i = 0; i < times; ++i) {
    const auto t = static_cast<size_t>(backwards ? times - 1 - i : i);
    const at::Tensor from_state = at::linear(whole, weights.state, weights.state_bias);
    units = shape.cell == RecurrentCell::lstm ? lstm_step(from_input[t], from_state, units)
                                              : gru_step(from_input[t], from_state, units);
    whole = gather_for_slices(units.state, -1, shape.units, axis);
    slices[t] = units.state;
    states[t] = whole.detach();
  }
  if (axis.size() == 1) return at::stack(slices);
  return Joined::apply(at::stack(slices), at::stack(states), &axis);
}

template <typename Options>
RecurrentShape shape_of(RecurrentCell cell, const Options& options) {
  return {cell,           options.input_size(),  options.hidden_size(),   options.num_layers(),
          options.bias(), options.batch_first(), options.bidirectional(), options.dropout()};
}

std::string why_too_few(int64_t units, int ranks) {
  return fmt::format("{} hidden units can't be split over {} ranks", units, ranks);
}

}  // namespace

std::vector<SplitWay> recurrent_ways(const RecurrentShape& shape, int ranks) {
  if (shape.units < ranks) return {};
  const Cut cut{0, shape.units, std::vector<int64_t>(static_cast<size_t>(gates_of(shape.cell)), 1)};
  const int64_t directions = shape.bidirectional ? 2 : 1;
  SplitWay way{"hidden units", {}, {}, {}, 0, shape.in * directions};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string suffix = fmt::format("_l{}{}", layer, direction == 1 ? "_reverse" : "");
      for (const char* name : {"weight_ih", "weight_hh"}) way.cuts.push_back({name + suffix, cut});
      if (shape.bias) {
        for (const char* name : {"bias_ih", "bias_hh"}) way.cuts.push_back({name + suffix, cut});
      }
      // Gradients of the input; states, and their gradients.
      way.payload += layer == 0 ? shape.in : shape.units * directions;
      way.payload += share({0, shape.units}, ranks, 0).size() + shape.units;
    }
  }
  return {way};
}

// torch works time first too, so dropout between layers meets the same elements.
at::Tensor split_recurrent(const RecurrentShape& shape, const at::Tensor& in,
                           const std::vector<at::Tensor>& weights, bool training, TensorAxis& axis) {
  at::Tensor x = shape.batch_first ? in.transpose(0, 1) : in;
  size_t next = 0;
  const auto take = [&]() -> Weights {
    Weights w{weights.at(next), weights.at(next + 1), {}, {}};
    next += 2;
    if (!shape.bias) return w;
    w.input_bias = weights.at(next++);
    w.state_bias = weights.at(next++);
    return w;
  };
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    if (layer > 0 && shape.dropout > 0) x = at::dropout(x, shape.dropout, training);
    at::Tensor states = run_direction(shape, x, take(), false, axis);
    if (shape.bidirectional) states = at::cat({states, run_direction(shape, x, take(), true, axis)}, -1);
    x = states;
  }
  return shape.batch_first ? x.transpose(0, 1) : x;
}

at::Tensor LSTMImpl::forward(const at::Tensor& in) {
  if (axis_ == nullptr) return std::get<0>(torch::nn::LSTMImpl::forward(in));
  return split_recurrent(shape_of(RecurrentCell::lstm, options), in, all_weights(), is_training(), *axis_);
}

std::vector<SplitWay> LSTMImpl::ways(int ranks) const {
  if (options.proj_size() > 0) return {};
  return recurrent_ways(shape_of(RecurrentCell::lstm, options), ranks);
}

std::string LSTMImpl::why_whole(int ranks) const {
  return options.proj_size() > 0 ? "projected states (proj_size) can't be split"
                                 : why_too_few(options.hidden_size(), ranks);
}

at::Tensor GRUImpl::forward(const at::Tensor& in) {
  if (axis_ == nullptr) return std::get<0>(torch::nn::GRUImpl::forward(in));
  return split_recurrent(shape_of(RecurrentCell::gru, options), in, all_weights(), is_training(), *axis_);
}

std::vector<SplitWay> GRUImpl::ways(int ranks) const {
  return recurrent_ways(shape_of(RecurrentCell::gru, options), ranks);
}

std::string GRUImpl::why_whole(int ranks) const { return why_too_few(options.hidden_size(), ranks); }

}  // namespace troika

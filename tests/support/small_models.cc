#include "support/small_models.h"

#include <torch/torch.h>

namespace troika::test {
namespace {

struct UnusedImpl : torch::nn::Module {
  UnusedImpl() {
    first = register_module("first", torch::nn::Linear(kFeatures, 6));
    unused = register_parameter("unused", torch::ones({3}));
    last = register_module("last", torch::nn::Linear(6, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::relu(first(x))); }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::Tensor unused;
};

struct TwoInputsImpl : torch::nn::Module {
  TwoInputsImpl() {
    left = register_module("left", torch::nn::Linear(kFeatures, 6));
    right = register_module("right", torch::nn::Linear(kFeatures, 6));
    last = register_module("last", torch::nn::Linear(6, 1));
    scale = register_buffer("scale", torch::full({1}, 0.5));
  }
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& y) {
    return last(torch::tanh(left(x) + scale * right(y)));
  }
  torch::nn::Linear left{nullptr}, right{nullptr}, last{nullptr};
  torch::Tensor scale;
};

// One submodule under two names, called twice.
struct ReusedImpl : torch::nn::Module {
  ReusedImpl() {
    inner = register_module("inner", torch::nn::Linear(kFeatures, kFeatures));
    register_module("again", inner);
    last = register_module("last", torch::nn::Linear(kFeatures, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(inner(torch::tanh(inner(x))))); }
  torch::nn::Linear inner{nullptr}, last{nullptr};
};

const torch::Tensor& table() {
  static const torch::Tensor numbers = [] {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(11);
    return torch::randn({256, 2 * kFeatures + 1}, generator);
  }();
  return numbers;
}

}  // namespace

SmallModel mlp(int64_t width) {
  return {"mlp",
          {layer<torch::nn::LinearImpl>("in", kFeatures, width), layer<torch::nn::ReLUImpl>("relu"),
           layer<torch::nn::LinearImpl>("mid", width, width), layer<torch::nn::TanhImpl>("tanh"),
           layer<torch::nn::LinearImpl>("out", width, 1)},
          1};
}

std::vector<SmallModel> small_models() {
  return {mlp(),
          {"unused", {layer<UnusedImpl>("")}, 1},
          {"two_inputs", {layer<TwoInputsImpl>("net")}, 2},
          {"reused", {layer<ReusedImpl>("net")}, 1}};
}

Batch rows(Range samples, int inputs, at::ScalarType dtype) {
  Batch batch;
  batch.samples = samples.size();
  batch.first_sample = samples.begin;
  const torch::Tensor part = table().narrow(0, samples.begin, samples.size()).to(dtype);
  for (int i = 0; i < inputs; ++i)
    batch.inputs.push_back(part.narrow(1, i * kFeatures, kFeatures).contiguous());
  batch.target = part.narrow(1, 2 * kFeatures, 1).contiguous();
  return batch;
}

std::vector<std::vector<Batch>> pieces_of(int64_t batch, int ranks, int micro_batches, int inputs,
                                          at::ScalarType dtype, int64_t first) {
  std::vector<std::vector<Batch>> pieces(static_cast<size_t>(ranks));
  for (int j = 0; j < micro_batches; ++j) {
    const Range micro = share({first, first + batch}, micro_batches, j);
    for (int r = 0; r < ranks; ++r) {
      const Range piece = share(micro, ranks, r);
      Batch part = rows(piece, inputs, dtype);
      part.first_sample = piece.begin - first;
      pieces[static_cast<size_t>(r)].push_back(std::move(part));
    }
  }
  return pieces;
}

LossValue squared_error(const Tensors& outputs, const Batch& batch) {
  return {(outputs[0] - batch.target).square().sum(), static_cast<double>(batch.samples)};
}

LossValue weighted_squared_error(const Tensors& outputs, const Batch& batch) {
  // By the sample's own numbers, so that a sample has the same weight in whichever piece it is.
  const torch::Tensor weights = 0.5 + batch.target.abs().floor();
  return {(weights * (outputs[0] - batch.target).square()).sum(), weights.sum().item<double>()};
}

double relative_difference(const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y) {
  if (x.size() != y.size()) return 1e300;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, y[i].abs().max().item<double>());
    difference = std::max(difference, (x[i] - y[i]).abs().max().item<double>());
  }
  return largest > 0 ? difference / largest : difference;
}

bool bitwise_equal(const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y) {
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    const torch::Tensor a = x[i].contiguous(), b = y[i].contiguous();
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
    if (std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) != 0) return false;
  }
  return true;
}

std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const NamedTensor& t : tensors) copies.push_back(t.tensor.detach().clone());
  return copies;
}

}  // namespace troika::test

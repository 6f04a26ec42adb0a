// A chain of layers with skips and dropout for tests of pipelines, and what a run leaves of each step.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <map>

#include "support/small_models.h"

namespace troika::test {

constexpr int64_t kWidth = 6;

/// Gives what it gets and a copy for whoever wants it.
struct ForkImpl : torch::nn::Module {
  ForkImpl() { linear = register_module("linear", torch::nn::Linear(kWidth, kWidth)); }
  Tensors forward(const Tensors& in) {
    const at::Tensor out = linear->forward(in.at(0)).tanh();
    return {out, out};
  }
  torch::nn::Linear linear{nullptr};
};

/// Adds what skipped to what came along.
struct JoinImpl : torch::nn::Module {
  JoinImpl() { linear = register_module("linear", torch::nn::Linear(kWidth, kWidth)); }
  Tensors forward(const Tensors& in) { return {linear->forward(in.at(0)).tanh() + in.at(1)}; }
  torch::nn::Linear linear{nullptr};
};

inline torch::nn::DropoutOptions half() { return torch::nn::DropoutOptions(0.5); }

/// Eight layers, so that there are enough for two stages on each of four lanes.
inline std::vector<Layer> chain(bool dropout, bool skips) {
  std::vector<Layer> layers;
  layers.push_back(layer<torch::nn::LinearImpl>("in", kFeatures, kWidth));
  layers.push_back(skips ? layer<ForkImpl>("fork").put("early")
                         : layer<torch::nn::LinearImpl>("one", kWidth, kWidth));
  layers.push_back(skips ? layer<JoinImpl>("near").get("early")
                         : layer<torch::nn::LinearImpl>("two", kWidth, kWidth));
  layers.push_back(dropout ? layer<torch::nn::DropoutImpl>("drop", half())
                           : layer<torch::nn::TanhImpl>("tanh"));
  layers.push_back(layer<torch::nn::LayerNormImpl>("norm", torch::nn::LayerNormOptions({kWidth})));
  layers.push_back(skips ? layer<JoinImpl>("join").get("early")
                         : layer<torch::nn::LinearImpl>("five", kWidth, kWidth));
  // What the fork put is read three times, in three stages where there are enough: sums have an order.
  layers.push_back(skips ? layer<JoinImpl>("again").get("early")
                         : layer<torch::nn::LinearImpl>("six", kWidth, kWidth));
  layers.push_back(layer<torch::nn::LinearImpl>("out", kWidth, 1));
  return layers;
}

inline std::vector<int64_t> even_starts(size_t layers, int stages) {
  std::vector<int64_t> starts;
  for (int s = 0; s < stages; ++s)
    starts.push_back(share({0, static_cast<int64_t>(layers)}, stages, s).begin);
  return starts;
}

/// By name, of each step: what any rank has of it (all that have it must agree).
struct Record {
  std::vector<double> losses, norms;
  std::vector<std::map<std::string, at::Tensor>> gradients, weights;
};

inline void add(std::map<std::string, at::Tensor>& to, const std::vector<NamedTensor>& named,
                const std::vector<at::Tensor>& values, const std::string& what) {
  ASSERT_EQ(named.size(), values.size());
  for (size_t i = 0; i < named.size(); ++i) {
    const auto [place, is_new] = to.emplace(named[i].name, values[i]);
    if (!is_new) {
      EXPECT_TRUE(bitwise_equal({place->second}, {values[i]})) << what << named[i].name;
    }
  }
}

}  // namespace troika::test

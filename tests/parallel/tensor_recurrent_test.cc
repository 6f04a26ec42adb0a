// LSTM, GRU and attention, on 1 to 4 tensor ranks and sizes that don't divide: as whole.
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include "parallel/tensor_parity.h"
#include "support/error_of.h"
#include "troika/parallel/tensor/attention.h"
#include "troika/parallel/tensor/recurrent.h"

namespace troika::test {
namespace {

// Sums in another order, through several time steps or a softmax.
constexpr double kThrough = 1e-5;

TEST(TensorRecurrent, LstmsByHiddenUnitsAreTheWholeOnes) {
  using torch::nn::LSTMOptions;
  const Tensors batch_first{numbers({4, 5, 3}, 1)};
  expect_parity("lstm", {layer<LSTMImpl>("l", LSTMOptions(3, 7).batch_first(true))}, batch_first, kThrough);
  expect_parity("lstm without biases",
                {layer<LSTMImpl>("l", LSTMOptions(3, 4).batch_first(true).bias(false))}, batch_first,
                kThrough);
  expect_parity("deep lstm",
                {layer<LSTMImpl>(
                    "l", LSTMOptions(3, 6).batch_first(true).num_layers(2).bidirectional(true).dropout(0.4))},
                batch_first, kThrough);
  const LayerSplit split =
      plan_tensor({layer<LSTMImpl>("l", LSTMOptions(3, 7).batch_first(true))}, 2).layers[0];
  EXPECT_EQ(split.way->name, "hidden units");
  EXPECT_EQ(split.weights_per_rank, 4 * 4 * (3 + 7 + 2));
}

TEST(TensorRecurrent, GrusByHiddenUnitsAreTheWholeOnes) {
  using torch::nn::GRUOptions;
  const Tensors batch_first{numbers({4, 5, 3}, 2)};
  expect_parity("gru", {layer<GRUImpl>("l", GRUOptions(3, 7).batch_first(true))}, batch_first, kThrough);
  expect_parity("gru without biases", {layer<GRUImpl>("l", GRUOptions(3, 4).batch_first(true).bias(false))},
                batch_first, kThrough);
  expect_parity("deep gru",
                {layer<GRUImpl>(
                    "l", GRUOptions(3, 6).batch_first(true).num_layers(2).bidirectional(true).dropout(0.4))},
                batch_first, kThrough);
}

/// Time comes first between its ends.
struct TimeFirstImpl : torch::nn::Module {
  TimeFirstImpl() {
    lstm = register_module("lstm", LSTM(torch::nn::LSTMOptions(3, 5).num_layers(2).dropout(0.5)));
    gru = register_module("gru", GRU(torch::nn::GRUOptions(5, 6)));
  }
  at::Tensor forward(const at::Tensor& x) { return gru(lstm(x.transpose(0, 1))).transpose(0, 1); }
  LSTM lstm{nullptr};
  GRU gru{nullptr};
};

TEST(TensorRecurrent, RecurrentPartsOfAUsersOwnForwardMayHaveTimeFirst) {
  expect_parity("time first", {layer<TimeFirstImpl>("own")}, {numbers({4, 6, 3}, 3)}, kThrough);
  EXPECT_EQ(plan_tensor({layer<TimeFirstImpl>("own")}, 2).layers[0].way->name, "parts");
}

TEST(TensorRecurrent, WhatCannotBeSplitIsSaid) {
  const auto why = [](const Layer& one, int ranks) { return plan_tensor({one}, ranks).layers[0].why_whole; };
  EXPECT_EQ(why(layer<LSTMImpl>("l", torch::nn::LSTMOptions(3, 6).proj_size(2)), 2),
            "projected states (proj_size) can't be split");
  EXPECT_EQ(why(layer<GRUImpl>("l", torch::nn::GRUOptions(3, 2)), 3),
            "2 hidden units can't be split over 3 ranks");
  EXPECT_EQ(why(layer<MultiheadAttentionImpl>("a", AttentionOptions{6, 2}), 3),
            "2 heads can't be split over 3 ranks");
  EXPECT_EQ(why(layer<MultiheadAttentionImpl>("a", AttentionOptions{8, 4, 2}), 3),
            "2 heads of keys and values can't be split over 3 ranks");
  EXPECT_NE(error_of([] {
              MultiheadAttentionImpl(AttentionOptions{7, 2});
            }).find("divisor of the width"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              MultiheadAttentionImpl(AttentionOptions{8, 4, 3});
            }).find("divisor of the heads"),
            std::string::npos);
}

TEST(TensorAttention, HeadsOfAttentionAreTheWholeOnes) {
  for (const bool causal : {false, true}) {
    for (const double dropout : {0.0, 0.4}) {
      const auto what = fmt::format("attention, dropout {}{}", dropout, causal ? ", causal" : "");
      expect_parity(what, {layer<MultiheadAttentionImpl>("a", AttentionOptions{10, 5, 0, dropout, causal})},
                    {numbers({3, 6, 10}, 4)}, kThrough);
      expect_parity(what + ", shared keys",
                    {layer<MultiheadAttentionImpl>("a", AttentionOptions{16, 8, 4, dropout, causal})},
                    {numbers({3, 6, 16}, 5)}, kThrough);
    }
  }
  const LayerSplit split =
      plan_tensor({layer<MultiheadAttentionImpl>("a", AttentionOptions{10, 5})}, 2).layers[0];
  EXPECT_EQ(split.way->name, "heads");
  EXPECT_EQ(split.weights_per_rank, 18 * 10 + 18 + 10 * 6 + 10);
}

}  // namespace
}  // namespace troika::test

// Convolutions and the norms beside them, on 1 to 4 tensor ranks and sizes that don't divide: as whole.
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "parallel/tensor_parity.h"
#include "support/error_of.h"

namespace troika::test {
namespace {

using namespace torch::nn;

// Sums of some dozen numbers in another order.
constexpr double kSums = 5e-6;
// And through a variance of few numbers. What a norm takes away, a bias before it, has no gradient but
// rounding, so there is none here.
constexpr double kThroughNorm = 1e-4;

TEST(TensorChannels, ConvolutionsByChannelsAreTheWholeOnes) {
  for (const char* way : {"channels", "input channels"}) {
    expect_parity(fmt::format("1d by {}", way),
                  {layer<Conv1dImpl>("c", Conv1dOptions(5, 7, 3).padding(1).dilation(2))},
                  {numbers({3, 5, 9}, 1)}, kSums, {{"c", way}});
    expect_parity(fmt::format("2d by {}", way),
                  {layer<Conv2dImpl>("c", Conv2dOptions(4, 6, 3).stride(2).bias(false))},
                  {numbers({3, 4, 7, 8}, 2)}, kSums, {{"c", way}});
    expect_parity(fmt::format("3d by {}", way),
                  {layer<Conv3dImpl>("c", Conv3dOptions(5, 4, 3).padding(torch::enumtype::kSame()))},
                  {numbers({2, 5, 3, 4, 3}, 3)}, kSums, {{"c", way}});
  }
}

TEST(TensorChannels, SlicesOfChannelsGoThroughNormActivationAndDropout) {
  const std::vector<Layer> chain{layer<Conv2dImpl>("a", Conv2dOptions(3, 6, 3).padding(1).bias(false)),
                                 layer<BatchNorm2dImpl>("norm", 6),
                                 layer<ReLUImpl>("r"),
                                 layer<DropoutImpl>("d", DropoutOptions(0.4)),
                                 layer<Conv2dImpl>("b", Conv2dOptions(6, 5, 3)),
                                 layer<ReLUImpl>("s"),
                                 layer<Conv2dImpl>("c", Conv2dOptions(5, 4, 1))};
  expect_parity("chain", chain, {numbers({4, 3, 5, 6}, 4)}, kThroughNorm);
  const TensorPlan plan = plan_tensor(chain, 2);
  EXPECT_EQ(plan.layers[0].way->name, "channels");
  EXPECT_EQ(plan.layers[1].way->name, "channels");
  EXPECT_EQ(plan.layers[1].weights_per_rank, 6);
  EXPECT_EQ(plan.layers[2].in, (Spread{-3, 6}));
}

TEST(TensorChannels, BatchNormKeepsTheStatisticsOfItsSlice) {
  const std::vector<Layer> rows{layer<LinearImpl>("l", LinearOptions(5, 7).bias(false)),
                                layer<BatchNorm1dImpl>("norm", BatchNorm1dOptions(7).momentum(std::nullopt)),
                                layer<LinearImpl>("m", 7, 3)};
  expect_parity("rows", rows, {numbers({9, 5}, 5)}, kThroughNorm);
  EXPECT_EQ(plan_tensor(rows, 3).layers[1].way->name, "channels");
  const std::vector<Layer> times{layer<Conv1dImpl>("c", Conv1dOptions(3, 6, 2).bias(false)),
                                 layer<BatchNorm1dImpl>("norm", 6)};
  expect_parity("times", times, {numbers({4, 3, 5}, 6)}, kThroughNorm);
  EXPECT_EQ(plan_tensor(times, 3).layers[1].in, (Spread{-2, 6}));
  const std::vector<Layer> plain{
      layer<Conv3dImpl>("c", Conv3dOptions(2, 5, 1).bias(false)),
      layer<BatchNorm3dImpl>("norm", BatchNorm3dOptions(5).affine(false).track_running_stats(false))};
  expect_parity("volumes", plain, {numbers({4, 2, 2, 3, 2}, 7)}, kThroughNorm);
}

TEST(TensorChannels, GroupNormIsSplitWhereRanksHaveWholeGroups) {
  const std::vector<Layer> chain{layer<Conv2dImpl>("c", Conv2dOptions(3, 8, 1)),
                                 layer<GroupNormImpl>("norm", GroupNormOptions(4, 8))};
  expect_parity("groups", chain, {numbers({3, 3, 2, 3}, 8)}, kThroughNorm);
  EXPECT_TRUE(plan_tensor(chain, 2).layers[1].way.has_value());
  EXPECT_TRUE(plan_tensor(chain, 4).layers[1].way.has_value());
  EXPECT_FALSE(plan_tensor(chain, 3).layers[1].way.has_value());
}

TEST(TensorChannels, WhatNeedsWholeRowsIsWholeAndSaysSo) {
  const std::vector<Layer> chain{layer<LinearImpl>("l", 4, 6),
                                 layer<LayerNormImpl>("norm", LayerNormOptions({6})),
                                 layer<Conv1dImpl>("c", Conv1dOptions(4, 4, 1).groups(2))};
  const TensorPlan plan = plan_tensor(chain, 2);
  EXPECT_EQ(plan.layers[1].why_whole, "it needs whole rows");
  EXPECT_FALSE(plan.layers[2].way.has_value());
  expect_parity("norm", {chain[0], chain[1]}, {numbers({5, 4}, 9)}, kThroughNorm);
}

TEST(TensorChannels, SlicesAlongAnotherDimensionThanTheChannelsAreRefused) {
  const std::vector<Layer> chain{layer<LinearImpl>("l", 4, 6), layer<BatchNorm1dImpl>("norm", 6)};
  const Tensors time_last{numbers({5, 6, 4}, 10)};
  const auto run = [&](const SplitChoices& choices) {
    run_split(chain, time_last, 5, at::kDouble, 2, choices);
  };
  EXPECT_NE(error_of([&] { run({}); }).find("isn't that of its channels"), std::string::npos);
  EXPECT_EQ(error_of([&] { run({{"norm", "whole"}}); }), "no error");
}

}  // namespace
}  // namespace troika::test

// A profile says what layers cost, and leaves no trace.
#include "troika/parallel/layer_profile.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "support/small_models.h"
#include "troika/comm/rank_group.h"

namespace troika::test {
namespace {

constexpr int64_t kSamples = 12, kWide = 32;

Layer linear(const std::string& name, int64_t in, int64_t out) {
  return layer<torch::nn::LinearImpl>(name, in, out);
}

std::vector<LayerProfile> profile(const std::vector<Layer>& layers,
                                  const ProfileOptions& how = {.rounds = 2}) {
  return profile_layers(layers, {}, rows({0, kSamples}), squared_error, how);
}

TEST(LayerProfile, CountsWhatIsSavedOnceAndForItsMaker) {
  const auto found = profile({linear("a", kFeatures, kWide), layer<torch::nn::TanhImpl>("tanh"),
                              linear("b", kWide, kWide), linear("c", kWide, 1)});
  constexpr int64_t kBytes = 4 * kSamples * kWide;
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].held_bytes, 0) << "tanh saves what it gives, not what it gets";
  EXPECT_EQ(found[0].loose_bytes, kBytes);
  EXPECT_EQ(found[0].output_bytes, kBytes);
  EXPECT_EQ(found[1].held_bytes, kBytes) << "saved by itself and by the next layer";
  EXPECT_EQ(found[1].loose_bytes, 0);
  EXPECT_EQ(found[2].held_bytes, kBytes);
  EXPECT_EQ(found[3].output_bytes, 0) << "goes to the loss";
  EXPECT_EQ(found[1].pending_bytes, 2 * kBytes)
      << "b's input, and the gradient of a's output, which tanh made";
  EXPECT_EQ(found[0].parameters, kFeatures * kWide + kWide);
  EXPECT_EQ(found[0].parameter_bytes, 4 * (kFeatures * kWide + kWide));
  EXPECT_EQ(found[1].parameters, 0);
}

TEST(LayerProfile, SaysHowManyWeightGradientsCanBePutOff) {
  const Batch batch{{at::full({kSamples, 6, kFeatures}, 0.5)}, at::full({kSamples, 6, 1}, 1.0), kSamples};
  struct LstmImpl : torch::nn::Module {
    LstmImpl() { lstm = register_module("lstm", torch::nn::LSTM(kFeatures, 8)); }
    at::Tensor forward(const at::Tensor& in) { return std::get<0>(lstm->forward(in)); }
    torch::nn::LSTM lstm{nullptr};
  };
  const auto found =
      profile_layers({linear("in", kFeatures, kFeatures), layer<LstmImpl>("lstm"), linear("out", 8, 1)}, {},
                     batch, squared_error, {.rounds = 2});
  EXPECT_EQ(found[0].split, (SplitCounts{0, 2}));
  EXPECT_EQ(found[1].split, (SplitCounts{4, 0})) << "one fused node computes both parts";
  EXPECT_EQ(found[2].split, (SplitCounts{0, 2}));
}

// In the order in which they come back.
std::vector<at::Tensor> g_gradients;
int g_forwards = 0;

/// Gives what it gets and, under a name, a copy; notes the gradients of what it gets.
struct WatchedImpl : torch::nn::Module {
  WatchedImpl(int64_t in, int64_t out, bool forks) : forks(forks) {
    linear = register_module("linear", torch::nn::Linear(in, out));
  }
  Tensors forward(const Tensors& in) {
    ++g_forwards;
    at::Tensor all = in[0] * 1.0;  // a tensor of its own: what others do with the input is no matter
    for (size_t i = 1; i < in.size(); ++i) all = all + in[i] * static_cast<double>(i + 1);
    if (all.requires_grad()) all.register_hook([](const at::Tensor& g) { g_gradients.push_back(g.clone()); });
    const at::Tensor out = linear->forward(all).tanh();
    return forks ? Tensors{out, out} : Tensors{out};
  }
  bool forks;
  torch::nn::Linear linear{nullptr};
};

std::vector<Layer> skipping() {
  return {layer<WatchedImpl>("one", kFeatures, kWide, true).put("early"),
          layer<WatchedImpl>("two", kWide, kWide, true).put("late"),
          layer<WatchedImpl>("three", kWide, kWide, false).get("early"),
          layer<WatchedImpl>("four", kWide, kWide, false)
              .get("late")
              .get("early")
              .tie("linear.weight", "three", "linear.weight"),
          layer<WatchedImpl>("five", kWide, 1, false)};
}

TEST(LayerProfile, GradientsComeBackAsInTheWholeModel) {
  const Batch batch = rows({0, kSamples});
  std::vector<Layer> layers = skipping();
  layers[3].ties.clear();  // there it would have another layer's numbers
  g_gradients.clear();
  const Model model(layers, 0);
  squared_error(model.forward(batch.inputs), batch).sum.backward();
  const std::vector<at::Tensor> expected = std::exchange(g_gradients, {});
  ASSERT_EQ(expected.size(), 4u);
  for (const bool in_parts : {true, false}) {
    g_gradients.clear();
    profile(layers, {.rounds = 2, .in_parts = in_parts});
    ASSERT_EQ(g_gradients.size(), 8u) << "two rounds";
    g_gradients.erase(g_gradients.begin(), g_gradients.begin() + 4);
    for (size_t i = 0; i < 4; ++i) {  // sums may have another order
      EXPECT_LT(relative_difference({g_gradients[i]}, {expected[i]}), 1e-6) << i << ", in parts " << in_parts;
    }
  }
}

TEST(LayerProfile, ATieCountsForItsOwner) {
  const auto found = profile(skipping());
  EXPECT_EQ(found[2].parameters, kWide * kWide + kWide);
  EXPECT_EQ(found[3].parameters, kWide) << "the bias alone";
}

TEST(LayerProfile, GoesThroughTheLayersTwiceAtLeastAndThenMindsTheTime) {
  const auto rounds = [](const ProfileOptions& how) {
    g_forwards = 0;
    profile(skipping(), how);
    return g_forwards / 5;
  };
  EXPECT_EQ(rounds({.seconds = 0, .rounds = 100}), 2);
  EXPECT_EQ(rounds({.seconds = 1000, .rounds = 5}), 5);
}

TEST(LayerProfile, MoreWorkTakesLonger) {
  for (const bool in_parts : {true, false}) {
    const auto found =
        profile({linear("wide", kFeatures, 1500), linear("wider", 1500, 1500), linear("out", 1500, 1)},
                {.rounds = 5, .in_parts = in_parts});
    EXPECT_GT(found[1].forward_s, found[2].forward_s);
    EXPECT_GT(found[1].backward_s, found[2].backward_s);
    EXPECT_EQ(found[1].input_s > 0, in_parts);
    EXPECT_EQ(found[1].weight_s > 0, in_parts);
    if (in_parts) {
      EXPECT_EQ(found[1].backward_s, found[1].input_s + found[1].weight_s);
    }
  }
}

TEST(LayerProfile, LeavesTrainingAlone) {
  const std::vector<Layer> layers = {
      linear("a", kFeatures, kWide), layer<torch::nn::BatchNorm1dImpl>("norm", kWide),
      layer<torch::nn::DropoutImpl>("drop", torch::nn::DropoutOptions(0.5)), linear("b", kWide, 1)};
  const Batch batch = rows({0, kSamples});
  const auto state = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  std::vector<at::Tensor> results;
  double losses[2] = {};
  for (const bool profiled : {false, true}) {
    run_thread_ranks(1, {}, [&](Communicator& communicator) {
      Replica replica(communicator, layers, {});
      for (int step = 0; step < 2; ++step) {
        const at::Tensor before = state();
        if (profiled) profile(layers);
        EXPECT_TRUE(at::equal(state(), before)) << "torch's generator";
        losses[profiled] = replica.step({&batch, 1}, squared_error).loss;
      }
      for (const NamedTensor& tensor : replica.state()) results.push_back(tensor.tensor);
    });
  }
  EXPECT_EQ(losses[0], losses[1]);
  const auto half = results.begin() + static_cast<ptrdiff_t>(results.size() / 2);
  EXPECT_TRUE(bitwise_equal({results.begin(), half}, {half, results.end()}));
}

}  // namespace
}  // namespace troika::test

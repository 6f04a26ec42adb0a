// Training with products in bfloat16: bit for bit the reference that does the same, close to float32, and
// nothing of it is left on a thread afterwards.
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>

#include "support/error_of.h"
#include "support/small_models.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/bf16.h"
#include "troika/parallel/micro_batched_reference.h"

namespace troika::test {
namespace {

constexpr int64_t kWidth = 32;

struct RecurrentImpl : torch::nn::Module {
  RecurrentImpl() {
    in = register_module("in", torch::nn::Linear(1, kWidth));
    lstm = register_module(
        "lstm", torch::nn::LSTM(
                    torch::nn::LSTMOptions(kWidth, kWidth).num_layers(2).dropout(0.25).batch_first(true)));
    out = register_module("out", torch::nn::Linear(kWidth, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor series = std::get<0>(lstm(torch::tanh(in(x.unsqueeze(2)))));
    const torch::Tensor attended = at::scaled_dot_product_attention(series, series, series);
    return out(attended.mean(1));
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::LSTM lstm{nullptr};
};

std::vector<SmallModel> models() { return {mlp(kWidth), {"recurrent", {layer<RecurrentImpl>("net")}}}; }

ReplicaOptions options_of(bool bf16, WeightPlacement placement = WeightPlacement::shared) {
  ReplicaOptions options;
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.optimizer.learning_rate = 0.05;
  options.weights = placement;
  options.bf16 = bf16;
  return options;
}

bool autocast_is_on() { return at::autocast::is_autocast_enabled(at::kCPU); }

struct Record {
  std::vector<double> losses;
  std::vector<std::vector<at::Tensor>> gradients;
};

constexpr int kSteps = 2;

Record run_engine(const SmallModel& model, const ReplicaOptions& options, int ranks, int micro_batches) {
  Record record;
  run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    Replica replica(communicator, model.layers, options);
    const auto pieces = pieces_of(20, ranks, micro_batches)[static_cast<size_t>(communicator.rank())];
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    for (int step = 0; step < kSteps; ++step) {
      const double loss = replica.step(pieces, squared_error, probe).loss;
      EXPECT_FALSE(autocast_is_on());
      if (communicator.rank() != 0) continue;
      record.losses.push_back(loss);
      record.gradients.push_back(mean);
    }
  });
  return record;
}

Record run_reference(const SmallModel& model, const ReplicaOptions& options, int ranks, int micro_batches) {
  Record record;
  MicroBatchedReference reference(model.layers, options, ranks);
  std::vector<at::Tensor> mean;
  for (int step = 0; step < kSteps; ++step) {
    record.losses.push_back(reference.step(pieces_of(20, ranks, micro_batches), squared_error, &mean).loss);
    record.gradients.push_back(mean);
  }
  return record;
}

TEST(Bf16, IsBitwiseTheReference) {
  at::set_num_threads(1);
  for (const SmallModel& model : models()) {
    for (const int ranks : {1, 2, 3}) {
      for (const int micro_batches : {1, 2}) {
        const Record reference = run_reference(model, options_of(true), ranks, micro_batches);
        for (const auto placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
          const Record engine = run_engine(model, options_of(true, placement), ranks, micro_batches);
          EXPECT_EQ(engine.losses, reference.losses) << model.name << ", " << ranks << " ranks";
          for (size_t step = 0; step < kSteps; ++step) {
            EXPECT_TRUE(bitwise_equal(engine.gradients[step], reference.gradients[step]))
                << model.name << ", " << ranks << " ranks, step " << step + 1;
          }
        }
      }
    }
  }
}

// Rounding to bfloat16 costs at most 2^-9 of a number. A product rounds its two operands and its result, so
// 3 x 2^-9; a gradient of this model comes through at most 6 products (3 layers, forward and back), and where
// terms cancel the error is that of the largest entry. Sums within a product are float32.
TEST(Bf16, GradientsAreNearThoseOfFloat32) {
  at::set_num_threads(1);
  const double tolerance = 6 * 3 * std::pow(2.0, -9);
  const SmallModel model = mlp(kWidth);
  const Record exact = run_engine(model, options_of(false), 2, 1);
  const Record rounded = run_engine(model, options_of(true), 2, 1);
  EXPECT_NEAR(rounded.losses[0], exact.losses[0], tolerance * exact.losses[0]);
  const double difference = relative_difference(rounded.gradients[0], exact.gradients[0]);
  EXPECT_LE(difference, tolerance);
  EXPECT_GE(difference, std::pow(2.0, -14)) << "products did run in bfloat16";
}

TEST(Bf16, ProductsAreRoundedAndSumsAreNot) {
  const torch::Tensor x = torch::rand({4, 8, 8}), weight = torch::rand({8, 8});
  torch::nn::LSTM lstm(8, 8);
  torch::nn::GRU gru(8, 8);
  torch::nn::Conv1d convolution(8, 8, 3);
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({8}));
  const torch::Tensor exact_gru = std::get<0>(gru(x));
  const auto type_of = [](const torch::Tensor& t) { return t.scalar_type(); };
  {
    const Bf16Scope scope(true);
    EXPECT_EQ(type_of(torch::linear(x, weight)), torch::kBFloat16);
    EXPECT_EQ(type_of(torch::matmul(x, weight)), torch::kBFloat16);
    EXPECT_EQ(type_of(torch::bmm(x, x)), torch::kBFloat16);
    EXPECT_EQ(type_of(convolution(x)), torch::kBFloat16);
    EXPECT_EQ(type_of(std::get<0>(lstm(x))), torch::kBFloat16);
    EXPECT_EQ(type_of(at::scaled_dot_product_attention(x, x, x)), torch::kBFloat16);
    // A GRU's products are rounded, the state that they are added to is not.
    const torch::Tensor rounded_gru = std::get<0>(gru(x));
    EXPECT_EQ(type_of(rounded_gru), torch::kFloat);
    const double difference = (rounded_gru - exact_gru).abs().max().item<double>();
    EXPECT_GT(difference, std::pow(2.0, -14));
    EXPECT_LT(difference, std::pow(2.0, -6));
    EXPECT_EQ(type_of(x.sum()), torch::kFloat);
    EXPECT_EQ(type_of(norm(x)), torch::kFloat);
    EXPECT_EQ(type_of(torch::softmax(x, 1)), torch::kFloat);
    EXPECT_EQ(type_of(torch::linear(x.to(torch::kDouble), weight.to(torch::kDouble))), torch::kDouble);
  }
  EXPECT_EQ(type_of(torch::linear(x, weight)), torch::kFloat);
  const Bf16Scope off(false);
  EXPECT_FALSE(autocast_is_on());
}

/// Counts the calls that ran in bfloat16, on all threads.
struct CountingImpl : torch::nn::Module {
  CountingImpl(std::shared_ptr<std::atomic<int>> calls, bool fails) : calls(std::move(calls)), fails(fails) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor product = torch::matmul(x, torch::ones({kFeatures, 1}));
    *calls += product.scalar_type() == torch::kBFloat16 && autocast_is_on();
    TORCH_CHECK(!fails, "on purpose");
    return product;
  }
  std::shared_ptr<std::atomic<int>> calls;
  bool fails;
};

TEST(Bf16, IsOnForEveryRankAndLeavesNothingBehind) {
  at::set_num_threads(1);
  for (const bool fails : {false, true}) {
    const auto calls = std::make_shared<std::atomic<int>>(0);
    const std::vector<Layer> layers{layer<torch::nn::LinearImpl>("in", kFeatures, kFeatures),
                                    layer<CountingImpl>("count", calls, fails)};
    std::atomic<int> float_losses = 0;
    const Loss loss = [&](const Tensors& outputs, const Batch& batch) {
      float_losses += outputs[0].scalar_type() == torch::kFloat && !autocast_is_on();
      return squared_error(outputs, batch);
    };
    const std::string error = error_of([&] {
      run_thread_ranks(2, {}, [&](Communicator& communicator) {
        Replica replica(communicator, layers, options_of(true));
        const auto step = [&] {
          replica.step(pieces_of(8, 2, 1)[static_cast<size_t>(communicator.rank())], loss);
        };
        if (fails) {
          EXPECT_THROW(step(), Error);
        } else {
          step();
          const Tensors out = replica.evaluate(rows({0, 4}).inputs);
          EXPECT_EQ(out[0].scalar_type(), torch::kFloat);
        }
        EXPECT_FALSE(autocast_is_on());
        EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
      });
    });
    EXPECT_EQ(error, "no error");
    if (!fails) {
      EXPECT_EQ(*calls, 4) << "two ranks, a step and an evaluation each";
      EXPECT_EQ(float_losses, 2);
    }
  }
}

// Weights are written behind autograd's back: casts of them must not be kept.
TEST(Bf16, SeesTheNewWeights) {
  at::set_num_threads(1);
  const SmallModel model = mlp(kWidth);
  run_thread_ranks(1, {}, [&](Communicator& communicator) {
    Replica trained(communicator, model.layers, options_of(true)),
        fresh(communicator, model.layers, options_of(true));
    const auto pieces = pieces_of(20, 1, 1)[0];
    const double first = trained.step(pieces, squared_error).loss;
    fresh.load_state(trained.state(), 1);
    const double second = trained.step(pieces, squared_error).loss;
    EXPECT_EQ(fresh.step(pieces, squared_error).loss, second);
    EXPECT_LT(second, first);
  });
}

}  // namespace
}  // namespace troika::test

// Dropout is that of the serial run for any ranks, micro-batches and sizes of batch, in whatever order a
// model keeps its samples; what can't be keyed by sample is refused by name.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "support/error_of.h"
#include "support/small_models.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"
#include "troika/parallel/step_context.h"

namespace troika::test {
namespace {

namespace F = torch::nn::functional;

constexpr int64_t kSteps = 4;  // of time, as many as some pieces have samples
constexpr int64_t kWidth = 6;
constexpr double kDrop = 0.4;

/// Samples are [kSteps, kFeatures]; `body` gets [n, kSteps, kWidth] and gives something of as many numbers.
struct SeriesImpl : torch::nn::Module {
  SeriesImpl() {
    first = register_module("first", torch::nn::Linear(kFeatures, kWidth));
    last = register_module("last", torch::nn::Linear(kSteps * kWidth, 1));
  }
  virtual torch::Tensor body(const torch::Tensor& x) = 0;
  torch::Tensor forward(const torch::Tensor& x) {
    return last(body(torch::tanh(first(x))).reshape({x.size(0), kSteps * kWidth}));
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

struct ModulesImpl : SeriesImpl {
  ModulesImpl() { drop = register_module("drop", torch::nn::Dropout(kDrop)); }
  torch::Tensor body(const torch::Tensor& x) override {
    const torch::Tensor twice = drop(torch::relu(drop(x)));
    return F::dropout(twice * 1.5, F::DropoutFuncOptions().p(0.2).training(is_training()).inplace(true));
  }
  torch::nn::Dropout drop{nullptr};
};

struct OtherKindsImpl : SeriesImpl {
  OtherKindsImpl() {
    features = register_module("features", torch::nn::Dropout2d(kDrop));
    alpha = register_module("alpha", torch::nn::AlphaDropout(kDrop));
    both = register_module("both", torch::nn::FeatureAlphaDropout(0.2));
  }
  torch::Tensor body(const torch::Tensor& x) override {
    return both(alpha(features(x.transpose(1, 2).unsqueeze(3)).squeeze(3)).transpose(1, 2));
  }
  torch::nn::Dropout2d features{nullptr};
  torch::nn::AlphaDropout alpha{nullptr};
  torch::nn::FeatureAlphaDropout both{nullptr};
};

struct LstmImpl : SeriesImpl {
  LstmImpl() {
    lstm = register_module(
        "lstm", torch::nn::LSTM(
                    torch::nn::LSTMOptions(kWidth, kWidth).num_layers(3).dropout(kDrop).batch_first(true)));
  }
  torch::Tensor body(const torch::Tensor& x) override { return std::get<0>(lstm(x)); }
  torch::nn::LSTM lstm{nullptr};
};

struct GruImpl : SeriesImpl {
  GruImpl() {
    gru = register_module(
        "gru",
        torch::nn::GRU(
            torch::nn::GRUOptions(kWidth, kWidth / 2).num_layers(2).dropout(kDrop).bidirectional(true)));
  }
  torch::Tensor body(const torch::Tensor& x) override {
    return std::get<0>(gru(x.transpose(0, 1))).transpose(0, 1);
  }
  torch::nn::GRU gru{nullptr};
};

/// Torch's own is time first; attention weights are [samples x heads, steps, steps].
struct EncoderImpl : SeriesImpl {
  EncoderImpl() {
    encoder = register_module(
        "encoder", torch::nn::TransformerEncoderLayer(
                       torch::nn::TransformerEncoderLayerOptions(kWidth, 2).dim_feedforward(5).dropout(0.3)));
  }
  torch::Tensor body(const torch::Tensor& x) override {
    return encoder(x.transpose(0, 1).contiguous()).transpose(0, 1);
  }
  torch::nn::TransformerEncoderLayer encoder{nullptr};
};

struct AttentionImpl : SeriesImpl {
  torch::Tensor body(const torch::Tensor& x) override {
    const torch::Tensor heads = x.view({x.size(0), kSteps, 2, kWidth / 2}).transpose(1, 2);
    return at::scaled_dot_product_attention(heads, heads, heads, {}, is_training() ? kDrop : 0.0)
        .transpose(1, 2);
  }
};

/// Samples in the middle, before and behind others in one dimension, and weights that are dropped for all.
struct MixedImpl : SeriesImpl {
  torch::Tensor body(const torch::Tensor& x) override {
    const int64_t n = x.size(0);
    const auto drop = [this](const torch::Tensor& t) { return torch::dropout(t, kDrop, is_training()); };
    const torch::Tensor time_first = drop(x.transpose(0, 1).contiguous());
    const torch::Tensor flat = drop(time_first.reshape({kSteps * n, kWidth})).view({kSteps, n, kWidth});
    const torch::Tensor rows = drop(flat.transpose(0, 1).reshape({n * kSteps, kWidth}));
    const torch::Tensor pair = drop(torch::cat({rows.view_as(x), 2 * rows.view_as(x)}));
    const torch::Tensor weights = drop(torch::ones({kWidth}, x.options()));
    return (pair.narrow(0, 0, n) + pair.narrow(0, n, n)) * weights;
  }
};

/// Layers that hand a time-first tensor to each other.
Layer transposed(const std::string& name) {
  struct TransposeImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return x.transpose(0, 1).contiguous(); }
  };
  return layer<TransposeImpl>(name);
}
struct MeanOverTimeImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x.mean(1); }
};

std::vector<SmallModel> noisy_models() {
  return {
      {"modules", {layer<ModulesImpl>("")}},
      {"other_kinds", {layer<OtherKindsImpl>("net")}},
      {"lstm", {layer<LstmImpl>("net")}},
      {"gru", {layer<GruImpl>("net")}},
      {"encoder", {layer<EncoderImpl>("net")}},
      {"attention", {layer<AttentionImpl>("net")}},
      {"mixed", {layer<MixedImpl>("net")}},
      {"mlp",
       {layer<torch::nn::LinearImpl>("in", kFeatures, kWidth), layer<torch::nn::DropoutImpl>("drop", kDrop),
        transposed("turn"), layer<torch::nn::DropoutImpl>("drop_turned", kDrop), transposed("turn_back"),
        layer<MeanOverTimeImpl>("mean"), layer<torch::nn::LinearImpl>("out", kWidth, 1)}}};
}

Batch series(Range samples, at::ScalarType dtype) {
  static const torch::Tensor numbers = [] {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(12);
    return torch::randn({72, kSteps * kFeatures + 1}, generator);
  }();
  const torch::Tensor part = numbers.narrow(0, samples.begin, samples.size()).to(dtype);
  Batch batch;
  batch.samples = samples.size();
  batch.first_sample = samples.begin;
  batch.inputs = {part.narrow(1, 0, kSteps * kFeatures).reshape({samples.size(), kSteps, kFeatures})};
  batch.target = part.narrow(1, kSteps * kFeatures, 1).contiguous();
  return batch;
}

struct Case {
  const SmallModel& model;
  int ranks, micro_batches;
  int64_t batch;
  ReplicaOptions options;

  std::vector<std::vector<Batch>> pieces() const {
    std::vector<std::vector<Batch>> all(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      for (int j = 0; j < micro_batches; ++j) {
        all[static_cast<size_t>(rank)].push_back(
            series(piece_of({0, batch}, micro_batches, j, ranks, rank), options.dtype));
      }
    }
    return all;
  }
};

constexpr int kTrained = 2;

/// Gradients and losses, step by step.
struct Record {
  std::vector<double> losses;
  std::vector<std::vector<at::Tensor>> gradients;
};

Record run_engine(const Case& c) {
  Record record;
  run_thread_ranks(c.ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    Replica replica(communicator, c.model.layers, c.options);
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    const auto pieces = c.pieces()[static_cast<size_t>(communicator.rank())];
    for (int step = 0; step < kTrained; ++step) {
      const double loss = replica.step(pieces, squared_error, probe).loss;
      if (communicator.rank() != 0) continue;
      record.losses.push_back(loss);
      record.gradients.push_back(mean);
    }
  });
  return record;
}

Record run_reference(const Case& c) {
  Record record;
  MicroBatchedReference reference(c.model.layers, c.options, c.ranks);
  std::vector<at::Tensor> mean;
  for (int step = 0; step < kTrained; ++step) {
    record.losses.push_back(reference.step(c.pieces(), squared_error, &mean).loss);
    record.gradients.push_back(mean);
  }
  return record;
}

/// The whole batch at once, by torch alone but for the step's context.
Record run_plain(const Case& c) {
  Record record;
  const Model model(c.model.layers, c.options.seed, c.options.dtype);
  for (int step = 0; step < kTrained; ++step) {
    const Batch batch = series({0, c.batch}, c.options.dtype);
    const StepScope scope({.seed = c.options.seed, .step = step + 1, .samples = {0, c.batch}});
    const LossValue value = squared_error(model.forward(batch.inputs), batch);
    (value.sum / value.weight).backward();
    record.losses.push_back((value.sum / value.weight).item<double>());
    record.gradients.emplace_back();
    const torch::NoGradGuard no_grad;
    for (const NamedTensor& p : model.parameters()) {
      torch::Tensor weight = p.tensor;
      record.gradients.back().push_back(weight.grad().clone());
      weight.sub_(weight.grad() * c.options.optimizer.learning_rate);
      weight.mutable_grad().reset();
    }
  }
  return record;
}

void check(const Case& c, const std::string& name) {
  const Record reference = run_reference(c);
  if (c.options.dtype == at::kDouble) {
    const Record plain = run_plain(c);
    for (size_t step = 0; step < kTrained; ++step) {
      EXPECT_NEAR(reference.losses[step], plain.losses[step], 1e-12 * plain.losses[step])
          << name << ", loss of step " << step + 1;
      EXPECT_LE(relative_difference(reference.gradients[step], plain.gradients[step]), 1e-12)
          << name << ", step " << step + 1;
    }
  }
  for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
    if (c.options.dtype == at::kDouble && placement != c.options.weights) continue;
    Case placed = c;
    placed.options.weights = placement;
    const Record engine = run_engine(placed);
    EXPECT_EQ(engine.losses, reference.losses) << name;
    for (size_t step = 0; step < kTrained; ++step) {
      EXPECT_TRUE(bitwise_equal(engine.gradients[step], reference.gradients[step]))
          << name << ", step " << step + 1;
    }
  }
}

class Dropout : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Dropout, testing::Values(1, 2, 3));

// Pieces have as many samples as there are steps of time, or twice as many, or one, or none, or differ.
TEST_P(Dropout, IsThatOfTheSerialRun) {
  at::set_num_threads(1);
  const int ranks = GetParam();
  for (const SmallModel& model : noisy_models()) {
    for (const auto& [micro_batches, batches] : std::map<int, std::vector<int64_t>>{
             {1, {4 * ranks, 13}}, {2, {16 * ranks, 4}}, {3, {12 * ranks, 13}}}) {
      for (const int64_t batch : batches) {
        Case c{model, ranks, micro_batches, batch, {}};
        c.options.optimizer.kind = Optimizer::Kind::sgd;
        c.options.optimizer.learning_rate = 0.05;
        c.options.seed = 5;
        c.options.dtype = batch == 13 ? at::kFloat : at::kDouble;
        c.options.weights = batch == 4 ? WeightPlacement::replicated : WeightPlacement::shared;
        check(c, fmt::format("{}, {} ranks, {} micro-batches, batch {}", model.name, ranks, micro_batches,
                             batch));
        if (HasFailure()) return;  // the first of hundreds says enough
      }
    }
  }
}

TEST(DropoutRun, ResumedDrawsTheSameStep) {
  at::set_num_threads(1);
  const std::vector<Layer> layers = noisy_models()[0].layers;
  run_thread_ranks(2, {}, [&](Communicator& communicator) {
    const std::vector<Batch> pieces{series(share({0, 9}, 2, communicator.rank()), at::kFloat)};
    Replica unbroken(communicator, layers, {}), resumed(communicator, layers, {}),
        early(communicator, layers, {});
    for (int step = 1; step <= 6; ++step) unbroken.step(pieces, squared_error);
    const auto state = unbroken.state();
    communicator.barrier();
    resumed.load_state(state, 6);
    early.load_state(state, 5);
    const double seventh = unbroken.step(pieces, squared_error).loss;
    EXPECT_EQ(resumed.step(pieces, squared_error).loss, seventh);
    EXPECT_NE(early.step(pieces, squared_error).loss, seventh) << "the noise of another step";
  });
}

/// One step on `ranks` ranks.
std::string refusal(const std::vector<Layer>& layers, int ranks) {
  return error_of([&] {
    run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
      at::set_num_threads(1);
      Replica replica(communicator, layers, {});
      const std::vector<Batch> pieces{series(share({0, 8}, ranks, communicator.rank()), at::kFloat)};
      replica.step(pieces, squared_error);
    });
  });
}

struct BetweenSamplesImpl : SeriesImpl {
  torch::Tensor body(const torch::Tensor& x) override {
    const torch::Tensor flat = x.flatten(1);
    return torch::matmul(torch::dropout(torch::softmax(torch::matmul(flat, flat.t()), 1), kDrop, true), flat);
  }
};
struct OneByOneImpl : SeriesImpl {
  torch::Tensor body(const torch::Tensor& x) override {
    std::vector<torch::Tensor> parts;
    for (int64_t i = 0; i < x.size(0); ++i) parts.push_back(torch::dropout(x[i], kDrop, true));
    return torch::stack(parts);
  }
};
struct RandomImpl : SeriesImpl {
  torch::Tensor body(const torch::Tensor& x) override { return x + torch::rand_like(x); }
};

TEST(DropoutRefused, WhatCanNotBeKeyedBySample) {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::vector<Layer> between{layer<BetweenSamplesImpl>("between")}, one{layer<OneByOneImpl>("single")},
      random{layer<RandomImpl>("random")};
  EXPECT_TRUE(has(refusal(between, 2), "layer \"between\": its dropout number 0")) << refusal(between, 2);
  EXPECT_TRUE(has(refusal(one, 2), "layer \"single\"")) << refusal(one, 2);
  EXPECT_TRUE(has(refusal(one, 3), "layer \"single\"")) << refusal(one, 3);
  EXPECT_TRUE(has(refusal(random, 2), "layer \"random\" draws random numbers")) << refusal(random, 2);
  for (const auto& layers : {between, one, random}) EXPECT_EQ(refusal(layers, 1), "no error");
}

/// NaN for the sum it met first with the whole batch, so only if the same elements are dropped again.
struct NanOnceImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const double sum = x.size(0) == 8 ? x.sum().item<double>() : -1;
    if (first == 0 && sum != -1) first = sum;
    return sum == first ? x * std::nan("") : x;
  }
  double first = 0;
};

TEST(DropoutFailure, IsLookedForUnderTheSameNoise) {
  at::set_num_threads(1);
  const std::vector<Layer> layers{layer<LstmImpl>("lstm"), layer<torch::nn::DropoutImpl>("drop", kDrop),
                                  layer<NanOnceImpl>("nan")};
  const std::string error = error_of([&] {
    run_thread_ranks(1, {}, [&](Communicator& communicator) {
      Replica replica(communicator, layers, {});
      const Batch batch = series({0, 8}, at::kFloat);
      replica.step({&batch, 1}, squared_error);
    });
  });
  EXPECT_NE(error.find("the output of layer \"nan\""), std::string::npos) << error;
}

}  // namespace
}  // namespace troika::test

#include "troika/train/verify.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "support/mutated_engine.h"
#include "troika/schedule/catalogue.h"
#include "troika/train/fit.h"
#include "troika/train/verify_cause.h"

namespace troika {
namespace {

constexpr int64_t kInputs = 5;

struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(kInputs, 8))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(8, 1))};
  at::Tensor forward(const at::Tensor& x) { return out(in(x).tanh()); }
};

// Samples are the same numbers whatever the cut.
VerifyWork make_work(int64_t samples) {
  VerifyWork work;
  work.layers = {layer<Net>("net")};
  work.loss = per_sample_loss([](const at::Tensor& o, const at::Tensor& t) { return (o - t).square(); });
  work.options.optimizer.kind = Optimizer::Kind::sgd;
  work.options.optimizer.learning_rate = 0.05;
  work.options.seed = 3;
  work.batch_size = [samples](int64_t) { return samples; };
  work.batch = [samples](int64_t step, Range part, at::ScalarType dtype) {
    const at::Tensor flat = at::arange(samples * kInputs, at::kDouble) + static_cast<double>(step);
    const at::Tensor x = flat.mul(0.7).sin().view({samples, kInputs}).narrow(0, part.begin, part.size());
    return Batch{{x.to(dtype)}, x.sum(1, true).to(dtype), part.size()};
  };
  return work;
}

struct Named {
  Mutation mutation;
  const char* what;
  const char* cause;
  const char* parameter;
};

TEST(Verify, PlantedMistakesAreCaughtAndNamed) {
  const Named expected[] = {
      {Mutation::sum_of_rank_means, "gradients", "sum_not_mean", "net.in.weight"},
      {Mutation::sum_of_samples, "gradients", "sum_not_mean", "net.in.weight"},
      {Mutation::mean_of_rank_means, "gradients", "unweighted_ragged", "net.in.weight"},
      {Mutation::skipped_bucket, "gradients", "missing_contribution", "net.out.weight"},
      {Mutation::lost_piece, "gradients", "missing_contribution", "net.in.weight"},
      {Mutation::counted_twice, "gradients", "double_contribution", "net.in.weight"},
      {Mutation::scaled_by_micro_batches, "gradients", "micro_batch_scale", "net.in.weight"},
      {Mutation::other_initial_weights, "weights", "initial_weights", "net.in.weight"},
  };
  for (const Named& e : expected) {
    VerifyWork work = make_work(11);  // 11 over 2 micro-batches and 3 ranks: all parts differ
    work.ranks = 3;
    work.micro_batches = 2;
    const VerifyResult result = verify(work, at::kDouble, mutated_engine(e.mutation));
    EXPECT_FALSE(result.equal) << e.cause;
    EXPECT_FALSE(result.bitwise) << e.cause;
    ASSERT_TRUE(result.first_difference) << e.cause;
    EXPECT_EQ(result.first_difference->what, e.what) << e.cause;
    EXPECT_EQ(result.first_difference->likely_cause, e.cause) << static_cast<int>(e.mutation);
    EXPECT_EQ(result.first_difference->parameter, e.parameter) << e.cause;
    EXPECT_EQ(result.first_difference->step, e.mutation == Mutation::other_initial_weights ? 0 : 1);
  }
}

// Clipping, decay and a rate that changes, at once.
VerifyWork make_full_work(int64_t samples) {
  VerifyWork work = make_work(samples);
  work.options.clip_norm = 0.5;  // the first gradient's is several times as large
  work.options.optimizer.weight_decay = 0.1;
  work.learning_rate = [](int64_t step) { return 0.05 / static_cast<double>(step + 1); };
  return work;
}

TEST(Verify, PipelinesAreEqualAndAMistakeInOneIsSeen) {
  for (const Mesh mesh : {Mesh{1, 2, 1}, Mesh{2, 3, 1}}) {
    VerifyWork work = make_full_work(11);
    work.layers = {layer<torch::nn::LinearImpl>("a", kInputs, 6), layer<torch::nn::LinearImpl>("b", 6, 6),
                   layer<torch::nn::LinearImpl>("c", 6, 1)};
    work.ranks = mesh.data;
    work.micro_batches = 3;
    work.options.mesh = mesh;
    work.options.pipeline =
        PipelineOptions{make_schedule("zb-h1", {.lanes = mesh.pipeline, .micro_batches = work.micro_batches}),
                        mesh.pipeline == 2 ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{0, 1, 2}};
    const VerifyResult result = verify(work, at::kDouble);
    EXPECT_TRUE(result.equal) << result.max_rel_diff;
    EXPECT_TRUE(result.bitwise);
    EXPECT_EQ(result.gradients, 6 * work.steps);
    const Engine wrong = [](const VerifyWork& w, at::ScalarType dtype, const auto& on_step) {
      run_engine(w, dtype, [&](const StepRecord& record) {
        StepRecord changed = record;
        changed.gradients[2] = 3 * changed.gradients[2];
        on_step(changed);
      });
    };
    const VerifyResult found = verify(work, at::kDouble, wrong);
    ASSERT_TRUE(found.first_difference);
    EXPECT_EQ(found.first_difference->parameter, "b.weight");
    EXPECT_NEAR(found.first_difference->factor, 3, 1e-6);
  }
}

TEST(Verify, MistakesOfTheUpdateShowInTheWeights) {
  const std::pair<Mutation, int64_t> expected[] = {
      {Mutation::clip_by_rank, 1}, {Mutation::decay_on_biases, 1}, {Mutation::late_learning_rate, 2}};
  for (const auto& [mutation, step] : expected) {
    VerifyWork work = make_full_work(11);
    work.ranks = 3;
    const VerifyResult result = verify(work, at::kDouble, mutated_engine(mutation));
    EXPECT_FALSE(result.equal) << static_cast<int>(mutation);
    EXPECT_FALSE(result.bitwise) << static_cast<int>(mutation);
    ASSERT_TRUE(result.first_difference) << static_cast<int>(mutation);
    EXPECT_EQ(result.first_difference->what, "weights") << static_cast<int>(mutation);
    EXPECT_EQ(result.first_difference->step, step) << static_cast<int>(mutation);
    EXPECT_EQ(result.first_difference->likely_cause, "unknown");
    EXPECT_EQ(result.first_difference->parameter,
              mutation == Mutation::decay_on_biases ? "net.in.bias" : "net.in.weight");
  }
  const VerifyResult none = verify(make_full_work(11), at::kDouble, mutated_engine(Mutation::none));
  EXPECT_TRUE(none.equal) << none.max_rel_diff;
}

TEST(Verify, AWrongNormIsNamed) {
  const Engine engine = [](const VerifyWork& work, at::ScalarType dtype, const auto& on_step) {
    run_engine(work, dtype, [&](const StepRecord& record) {
      StepRecord changed = record;
      changed.grad_norm *= 1 + 1e-8;
      on_step(changed);
    });
  };
  const VerifyResult result = verify(make_full_work(11), at::kDouble, engine);
  ASSERT_TRUE(result.first_difference);
  EXPECT_EQ(result.first_difference->what, "grad_norm");
  EXPECT_EQ(result.first_difference->parameter, "");
  EXPECT_NEAR(result.first_difference->factor, 1 + 1e-8, 1e-12);
}

TEST(Verify, TheEngineIsEqualWithClippingDecayAndRates) {
  for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
    for (const auto kind : {Optimizer::Kind::sgd, Optimizer::Kind::adam, Optimizer::Kind::adamw}) {
      for (const double clip_norm : {0.3, 1e6}) {
        VerifyWork work = make_full_work(11);
        work.ranks = 3;
        work.micro_batches = 2;
        work.options.weights = placement;
        work.options.optimizer.kind = kind;
        work.options.clip_norm = clip_norm;
        const VerifyResult result = verify(work, at::kDouble);
        EXPECT_TRUE(result.equal) << result.max_rel_diff << " " << clip_norm;
        EXPECT_TRUE(result.bitwise) << clip_norm;
      }
    }
  }
}

struct NormNet : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(kInputs, 8))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(8))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.3))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(8, 1))};
  at::Tensor forward(const at::Tensor& x) { return out(dropout(norm(in(x).tanh()))); }
};

TEST(Verify, NoiseAndBatchStatisticsAreThoseOfThePlainRun) {
  for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
    VerifyWork work = make_full_work(22);
    work.layers = {layer<NormNet>("net")};
    work.ranks = 3;
    work.micro_batches = 2;
    work.options.weights = placement;
    work.options.batch_norm_group = 4;  // 6 groups, the last of 2
    const VerifyResult result = verify(work, at::kDouble);
    EXPECT_TRUE(result.equal) << result.max_rel_diff;
    EXPECT_TRUE(result.bitwise);
    EXPECT_EQ(result.buffers, 3 * 3 * 3) << "steps x ranks x buffers";
  }
}

/// Drops time first.
struct TurnedNet : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(kInputs, 8))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(8))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.3))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(8, 1))};
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor rows = norm(in(x).tanh()).view({-1, 2, 4}).transpose(0, 1).contiguous();
    return out(dropout(rows).transpose(0, 1).flatten(1));
  }
};

// Where the samples are is found by a trial, which leaves running statistics alone.
TEST(Verify, NoiseThatIsNotBatchFirstIsThatOfThePlainRun) {
  VerifyWork work = make_full_work(22);
  work.layers = {layer<TurnedNet>("net")};
  work.options.batch_norm_group = 4;
  const VerifyResult result = verify(work, at::kDouble);
  EXPECT_TRUE(result.equal) << result.max_rel_diff;
  EXPECT_TRUE(result.bitwise);
}

TEST(Verify, ChangedBuffersAreSeenByBothReferences) {
  const Engine engine = [](const VerifyWork& work, at::ScalarType dtype, const auto& on_step) {
    run_engine(work, dtype, [&](const StepRecord& record) {
      StepRecord changed = record;
      changed.buffers[1][0] = record.buffers[1][0] * (1 + 1e-5);
      on_step(changed);
    });
  };
  VerifyWork work = make_work(8);
  work.layers = {layer<NormNet>("net")};
  work.options.batch_norm_group = 4;
  const VerifyResult result = verify(work, at::kDouble, engine);
  EXPECT_FALSE(result.bitwise);
  ASSERT_TRUE(result.first_difference);
  EXPECT_EQ(result.first_difference->what, "buffers");
  EXPECT_EQ(result.first_difference->parameter, "net.norm.running_mean");
}

TEST(Verify, Bf16IsOfTheBitwiseReferenceOnly) {
  VerifyWork work = make_work(11);
  work.options.bf16 = true;
  std::vector<bool> seen;
  const Engine engine = [&](const VerifyWork& given, at::ScalarType dtype, const auto& on_step) {
    seen.push_back(given.options.bf16);
    run_engine(given, dtype, on_step);
  };
  const VerifyResult result = verify(work, at::kDouble, engine);
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_TRUE(result.equal) << result.max_rel_diff;
  EXPECT_TRUE(result.bitwise);
}

// Every sample weighs nothing: no step, and the noise of the next one is that of the next one.
TEST(Verify, ABatchOfWeightZeroIsNoStep) {
  VerifyWork work = make_full_work(22);
  work.layers = {layer<NormNet>("net")};
  work.options.batch_norm_group = 4;
  const auto batch = work.batch;
  work.batch = [batch](int64_t step, Range part, at::ScalarType dtype) {
    Batch weighted = batch(step, part, dtype);
    weighted.weights = at::full({part.size()}, step == 1 ? 0.0 : 2.0, dtype);
    return weighted;
  };
  work.loss = [](const Tensors& outputs, const Batch& b) {
    const at::Tensor losses = (outputs[0] - b.target).square().squeeze(1) * b.weights;
    return LossValue{losses.sum(), b.weights.sum().item<double>()};
  };
  const VerifyResult result = verify(work, at::kDouble);
  EXPECT_TRUE(result.equal) << result.max_rel_diff;
  EXPECT_TRUE(result.bitwise);
}

TEST(Verify, StaleWeightsAreNamedAtTheSecondStep) {
  const VerifyResult result = verify(make_work(8), at::kDouble, mutated_engine(Mutation::stale_weights));
  ASSERT_TRUE(result.first_difference);
  EXPECT_EQ(result.first_difference->step, 2);
  EXPECT_EQ(result.first_difference->likely_cause, "stale_or_new_weights");
}

TEST(Verify, TheFactorSaysHowManyTimesTooLarge) {
  const VerifyResult result = verify(make_work(8), at::kDouble, mutated_engine(Mutation::sum_of_rank_means));
  ASSERT_TRUE(result.first_difference);
  EXPECT_NEAR(result.first_difference->factor, 2, 1e-9);  // two ranks
}

// The simulation without a mistake passes, so the refusals above are about the mistakes.
TEST(Verify, NoMistakeNoDifference) {
  const VerifyResult result = verify(make_work(11), at::kDouble, mutated_engine(Mutation::none));
  EXPECT_TRUE(result.equal) << result.max_rel_diff;
  EXPECT_EQ(result.losses, 3);
  EXPECT_EQ(result.gradients, 3 * 4);
}

TEST(Verify, TheEngineIsEqualAndBitwise) {
  for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
    for (const auto kind : {Optimizer::Kind::sgd, Optimizer::Kind::adamw}) {
      for (const int64_t samples : {1, 2, 11}) {
        VerifyWork work = make_work(samples);
        work.ranks = 3;
        work.micro_batches = 2;
        work.options.weights = placement;
        work.options.optimizer.kind = kind;
        work.options.optimizer.learning_rate = 1e-3;
        const VerifyResult result = verify(work, at::kDouble);
        EXPECT_TRUE(result.equal) << result.max_rel_diff << " " << samples;
        EXPECT_TRUE(result.bitwise) << samples;
        EXPECT_FALSE(result.first_difference);
        EXPECT_LT(result.max_rel_diff, 1e-12);
      }
    }
  }
}

// Centred, so that what shifts all of a sample's features alike has no effect: its gradient is noise.
struct CentredNet : torch::nn::Module {
  at::Tensor shift{register_parameter("shift", at::zeros({1}))};
  torch::nn::Linear in{register_module("in", torch::nn::Linear(kInputs, 8))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(8, 1))};
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor moved = in(x) + shift;
    return out((moved - moved.mean(1, true)).tanh());
  }
};

// Adam makes steps of noise of 1e-17, others on each side; the update is right all the same.
TEST(Verify, AdamsStepsOfNoiseAreNoMistake) {
  for (const auto kind : {Optimizer::Kind::adam, Optimizer::Kind::adamw}) {
    VerifyWork work = make_full_work(11);
    work.layers = {layer<CentredNet>("net")};
    work.ranks = 3;
    work.micro_batches = 2;
    work.steps = 6;
    work.options.optimizer.kind = kind;
    const VerifyResult result = verify(work, at::kDouble);
    EXPECT_TRUE(result.equal) << result.max_rel_diff;
    EXPECT_GT(result.max_abs_diff, 1e-13);  // of the shift
    for (const Mutation mutation : {Mutation::decay_on_biases, Mutation::late_learning_rate}) {
      EXPECT_FALSE(verify(work, at::kDouble, mutated_engine(mutation)).equal) << static_cast<int>(mutation);
    }
  }
}

TEST(Verify, InFloat32TooWithItsOwnTolerance) {
  VerifyWork work = make_work(64);
  const VerifyResult result = verify(work, at::kFloat);
  EXPECT_TRUE(result.equal) << result.max_rel_diff;
  EXPECT_EQ(result.tolerance, 1e-5);
  EXPECT_GT(result.max_rel_diff,
            0);  // two halves don't round like the whole: zero would mean nothing was compared
}

TEST(VerifyCause, AZeroGradientIsNoCause) {
  const at::Tensor zero = at::zeros({2}, at::kDouble), one = at::ones({2}, at::kDouble);
  EXPECT_EQ(cause_from_pieces(one * 17, {{{one}, {one}}, {{1}, {1}}}, 1e-8).name, "unknown");
  EXPECT_EQ(cause_from_pieces(zero, {{{one}, {one}}, {{1}, {1}}}, 1e-8).name, "missing_contribution");
}

}  // namespace
}  // namespace troika

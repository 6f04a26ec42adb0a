#include "troika/train/verify.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "support/mutated_engine.h"
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
  EXPECT_EQ(cause_from_pieces(one * 17, {{{one}, {one}}, {{1}, {1}}}, 1e-8), "unknown");
  EXPECT_EQ(cause_from_pieces(zero, {{{one}, {one}}, {{1}, {1}}}, 1e-8), "missing_contribution");
}

}  // namespace
}  // namespace troika

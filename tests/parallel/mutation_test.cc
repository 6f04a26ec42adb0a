// The comparison that parity rests on must see the classic mistakes; each is planted here, and the same run
// without it must pass.
#include "support/mutations.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "support/small_models.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"

namespace troika::test {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kBatch = 13;  // ragged: 5, 4, 4

struct Plan {
  std::function<Loss(Loss)> spoil_loss = [](Loss loss) { return loss; };
  int skipped_bucket = -1;
  int perturbed_rank = -1;
};

struct Differences {
  double loss = 0, gradients = 0, norm = 0, weights = 0;  // relative; the largest of all ranks
};

Differences run(const Plan& plan) {
  const SmallModel model = mlp();
  ReplicaOptions options;
  options.weights = WeightPlacement::replicated;
  options.dtype = at::kDouble;
  options.bucket_bytes = 64;
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.optimizer.learning_rate = 0.1;
  options.clip_norm = 1e6;  // none of these gradients
  const auto pieces = pieces_of(kBatch, kRanks, 1, 1, options.dtype);
  MicroBatchedReference reference(model.layers, options, kRanks);
  std::vector<at::Tensor> expected_mean;
  const StepResult expected = reference.step(pieces, squared_error, &expected_mean);

  std::vector<Differences> differences(kRanks);
  run_thread_ranks(kRanks, {}, [&](Communicator& inner) {
    const auto rank = static_cast<size_t>(inner.rank());
    SkippingCommunicator communicator(inner, plan.skipped_bucket);
    Replica replica(communicator, model.layers, options);
    if (inner.rank() == plan.perturbed_rank) perturb_weights(replica.parameters());
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    const StepResult got = replica.step(pieces[rank], plan.spoil_loss(squared_error), probe);
    differences[rank] = {
        std::abs(got.loss - expected.loss) / expected.loss, relative_difference(mean, expected_mean),
        std::abs(got.grad_norm - expected.grad_norm) / expected.grad_norm,
        relative_difference(copies_of(replica.parameters()), copies_of(reference.parameters()))};
  });
  Differences worst;
  for (const Differences& d : differences) {
    worst.loss = std::max(worst.loss, d.loss);
    worst.gradients = std::max(worst.gradients, d.gradients);
    worst.norm = std::max(worst.norm, d.norm);
    worst.weights = std::max(worst.weights, d.weights);
  }
  return worst;
}

TEST(Mutation, NoneIsEqualBitForBit) {
  const Differences d = run({});
  EXPECT_EQ(d.loss, 0);
  EXPECT_EQ(d.gradients, 0);
  EXPECT_EQ(d.norm, 0);
  EXPECT_EQ(d.weights, 0);
}

TEST(Mutation, SumInsteadOfMeanIsSeen) {
  Plan plan;
  plan.spoil_loss = [](Loss loss) { return summed_over_ranks(std::move(loss), kRanks); };
  const Differences d = run(plan);
  EXPECT_NEAR(d.gradients, kRanks - 1, 1e-6) << "gradients three times as large";
  EXPECT_NEAR(d.norm, kRanks - 1, 1e-6);
  EXPECT_GT(d.loss, 1e-3);
  EXPECT_GT(d.weights, 1e-6);
}

TEST(Mutation, UnweightedRaggedBatchIsSeen) {
  Plan plan;
  plan.spoil_loss = unweighted;
  const Differences d = run(plan);
  EXPECT_GT(d.gradients, 1e-4);
  EXPECT_GT(d.loss, 1e-4);
  EXPECT_GT(d.weights, 1e-6);
}

TEST(Mutation, SkippedBucketIsSeen) {
  for (const int bucket : {0, 2, 5}) {
    Plan plan;
    plan.skipped_bucket = bucket;
    const Differences d = run(plan);
    EXPECT_GT(d.gradients, 1e-4) << "bucket " << bucket;
    EXPECT_GT(d.norm, 1e-6) << "bucket " << bucket;
    EXPECT_GT(d.weights, 1e-6) << "bucket " << bucket;
    EXPECT_EQ(d.loss, 0);
  }
}

TEST(Mutation, OtherInitialWeightsAreSeen) {
  Plan plan;
  plan.perturbed_rank = 1;
  const Differences d = run(plan);
  EXPECT_GT(d.loss, 1e-8);
  EXPECT_GT(d.gradients, 1e-8);
  EXPECT_GT(d.weights, 1e-8);
}

}  // namespace
}  // namespace troika::test

// BatchNorm by groups: what can't be the serial run is refused, with the way out; what fails leaves nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/error_of.h"
#include "support/small_models.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/batch_norm.h"
#include "troika/parallel/step_context.h"

namespace troika::test {
namespace {

/// One rank, or several, with `body` on each; returns what each says that it throws.
std::vector<std::string> errors_of(int ranks, const ReplicaOptions& options, const std::vector<Layer>& layers,
                                   const std::function<void(Replica&, int rank)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  try {
    run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
      at::set_num_threads(1);
      Replica replica(communicator, layers, options);
      try {
        body(replica, communicator.rank());
      } catch (const Error& error) {
        errors[static_cast<size_t>(communicator.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error& error) {
    if (errors[0].empty()) errors[0] = error.what();
  }
  return errors;
}

Batch piece(Range samples, int64_t first_sample) {
  Batch batch = rows(samples);
  batch.first_sample = first_sample;
  return batch;
}

std::vector<Layer> simple_net() {
  auto layers = mlp().layers;
  layers.insert(layers.begin() + 1, layer<torch::nn::BatchNorm1dImpl>("norm", 7));
  return layers;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(BatchNormRefusal, NothingButATrainingStepThatSucceedsMovesTheStatistics) {
  ReplicaOptions options;
  options.batch_norm_group = 4;
  const auto errors = errors_of(2, options, simple_net(), [&](Replica& replica, int rank) {
    Batch mine = piece({4 * rank, 4 * rank + 4}, 4 * rank);
    replica.step({&mine, 1}, squared_error);
    const auto before = copies_of(replica.others());
    EXPECT_EQ(before[2].item<int64_t>(), 2);
    replica.evaluate(mine.inputs);
    EXPECT_TRUE(bitwise_equal(copies_of(replica.others()), before)) << "after an evaluation";
    Batch bad = mine;
    bad.target = bad.target / 0;
    EXPECT_THROW(replica.step({&bad, 1}, squared_error), Error);
    EXPECT_TRUE(bitwise_equal(copies_of(replica.others()), before)) << "after a step that failed";
    replica.step({&mine, 1}, squared_error);
    EXPECT_EQ(replica.others()[2].tensor.item<int64_t>(), 4);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(BatchNormRefusal, GroupsThatDoNotFitAreRefusedWithNumbersThatDo) {
  const auto refused = [](int64_t batch, int64_t group, int ranks, int64_t micro_batches) {
    return error_of([&] { check_batch_norm_group("conv1.norm", batch, group, ranks, micro_batches); });
  };
  EXPECT_EQ(
      refused(64, 64, 2, 1),
      "layer \"conv1.norm\" is a BatchNorm, which normalises over the whole batch: 2 ranks x 1 micro-batch "
      "need at least 2 groups in a batch of 64 samples, because no group is spread over ranks or "
      "micro-batches. Set train.batch_norm_group to 32, 16, 8, 4, 2, or use fewer ranks or micro-batches");
  EXPECT_TRUE(
      has(refused(60, 20, 2, 2), "over groups of 20 samples: 2 ranks x 2 micro-batches need at least 4"));
  EXPECT_TRUE(has(refused(60, 20, 2, 2), "to 15, 12, 10, 6, 5,"));
  // 61 is prime: sizes that leave more than one sample for the last group.
  EXPECT_TRUE(has(refused(61, 0, 2, 1), "to 59, 58, 57, 56, 55,"));
  EXPECT_TRUE(has(refused(3, 0, 2, 1), "Take a batch of at least 4 samples, or fewer ranks"));
  EXPECT_TRUE(has(refused(64, -1, 1, 1), "batch_norm_group is -1"));
  EXPECT_EQ(refused(64, 0, 1, 1), "no error");
  EXPECT_EQ(refused(64, 16, 2, 2), "no error");
  EXPECT_EQ(refused(64, 16, 1, 4), "no error");
  EXPECT_TRUE(has(refused(64, 16, 5, 1), "need at least 5"));
  for (const int64_t batch : {8, 30, 61, 97}) {
    for (const int64_t group : {2, 3, 5, 30}) {
      if (refused(batch, group, 3, 2) == "no error") {
        for (int r = 0; r < 3; ++r) EXPECT_GT(piece_of({0, batch}, 2, 1, 3, r, group).size(), 0);
      }
    }
  }
}

TEST(BatchNormRefusal, PiecesThatCutAGroupAreRefused) {
  ReplicaOptions options;
  EXPECT_TRUE(has(errors_of(2, options, simple_net(), [](Replica&, int) {})[0],
                  "layer \"norm\" is a BatchNorm over the whole batch, and its samples are on 2 ranks: set "
                  "batch_norm_group"));
  const auto one_rank = [&](int64_t group, std::vector<Batch> pieces) {
    options.batch_norm_group = group;
    return errors_of(1, options, simple_net(),
                     [&](Replica& replica, int) { replica.step(pieces, squared_error); })[0];
  };
  EXPECT_TRUE(has(one_rank(0, {piece({0, 4}, 0), piece({4, 8}, 4)}),
                  "layer \"norm\" is a BatchNorm over the whole batch, and a piece starts at sample 4"));
  EXPECT_TRUE(has(one_rank(4, {piece({0, 6}, 0), piece({6, 8}, 6)}),
                  "layer \"norm\" is a BatchNorm over groups of 4 samples, and a piece starts at sample 6"));
  EXPECT_TRUE(
      has(one_rank(4, {piece({0, 4}, 0), piece({4, 8}, 0)}), "before the end of the one before it (4)"));
  EXPECT_EQ(one_rank(4, {piece({0, 4}, 0), piece({4, 6}, 4)}), "");

  // Nobody has said where the second rank's samples are.
  options.batch_norm_group = 4;
  const auto both = errors_of(2, options, simple_net(), [](Replica& replica, int rank) {
    const Batch mine = piece({4 * rank, 4 * rank + 4}, 0);
    replica.step({&mine, 1}, squared_error);
  });
  EXPECT_TRUE(has(both[0], "two ranks had group 0 of the batch for \"norm.running_mean\"")) << both[0];
  EXPECT_EQ(both[0], both[1]);
}

struct TurnedImpl : torch::nn::Module {
  TurnedImpl() {
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    out = register_module("out", torch::nn::Linear(4 * kFeatures, 1));
  }
  // [n * features, 4]: not one row a sample.
  torch::Tensor forward(const torch::Tensor& x) {
    return out(norm(x.view({-1, 1}).repeat({1, 4})).view({x.size(0), -1}));
  }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear out{nullptr};
};

TEST(BatchNormRefusal, WhatItCantTellApartIsNamed) {
  ReplicaOptions options;
  options.batch_norm_group = 4;
  const auto step = [&](const std::vector<Layer>& layers, int64_t samples) {
    return errors_of(1, options, layers, [&](Replica& replica, int) {
      const Batch batch = piece({0, samples}, 0);
      replica.step({&batch, 1}, squared_error);
    })[0];
  };
  EXPECT_TRUE(has(step({layer<TurnedImpl>("turned")}, 8),
                  "layer \"turned\", forward: its BatchNorm gets an input of "
                  "shape [40, 4] for 8 samples"));
  EXPECT_EQ(step({layer<TurnedImpl>("turned")}, 4), "") << "one group needs no telling";
  for (const int64_t samples : {1, 9}) {
    const std::string text = step(simple_net(), samples);
    EXPECT_TRUE(
        has(text, "layer \"norm\", forward: its BatchNorm gets a group of 1 sample with 1 value per channel"))
        << text;
    EXPECT_TRUE(has(text, fmt::format("(sample {} of this batch; groups have 4)", samples - 1))) << text;
  }
}

// Torch computes it by a batch_norm over one sample of n * c channels.
TEST(BatchNormRefusal, InstanceNormIsLeftAlone) {
  torch::nn::InstanceNorm1d norm(torch::nn::InstanceNorm1dOptions(3).affine(true));
  const torch::Tensor x = rows({0, 12}).inputs[0].view({4, 3, 5});
  const torch::Tensor outside = norm(x);
  const StepScope scope({.samples = {0, 4}, .batch_norm_group = 2});
  EXPECT_TRUE(bitwise_equal({norm(x)}, {outside}));
}

struct TracksInstancesImpl : torch::nn::Module {
  TracksInstancesImpl() {
    norm = register_module(
        "norm", torch::nn::InstanceNorm1d(torch::nn::InstanceNorm1dOptions(1).track_running_stats(true)));
    out = register_module("out", torch::nn::Linear(kFeatures, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(norm(x.unsqueeze(1)).squeeze(1)); }
  torch::nn::InstanceNorm1d norm{nullptr};
  torch::nn::Linear out{nullptr};
};

TEST(BatchNormRefusal, InstanceNormWithRunningStatisticsOverPieces) {
  const std::vector<Layer> layers{layer<TracksInstancesImpl>("net")};
  const auto error = [&](int ranks, size_t count) {
    return errors_of(ranks, {}, layers, [&](Replica& replica, int) {
      const std::vector<Batch> pieces(count, piece({0, 4}, 0));
      replica.step(pieces, squared_error);
    })[0];
  };
  EXPECT_EQ(error(1, 1), "");
  EXPECT_TRUE(has(error(1, 2), "layer \"net.norm\" is an InstanceNorm with running statistics"));
  EXPECT_TRUE(has(error(2, 1), "each of the 2 pieces"));
}

}  // namespace
}  // namespace troika::test

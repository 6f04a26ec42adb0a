#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "support/small_models.h"
#include "troika/base/error.h"
#include "troika/comm/rank_group.h"

namespace troika::test {
namespace {

ReplicaOptions options_of(WeightPlacement weights, Optimizer::Kind kind) {
  ReplicaOptions options;
  options.weights = weights;
  options.dtype = at::kDouble;
  options.optimizer.kind = kind;
  options.optimizer.momentum = 0.9;
  options.optimizer.learning_rate = 0.01;
  options.bucket_bytes = 256;
  return options;
}

using State = std::vector<NamedTensor>;

/// `steps` steps from `start` on, which may be empty; the state in the end.
State run(int ranks, const ReplicaOptions& options, const State& start, int first, int steps,
          const SmallModel& model = small_models()[1]) {
  State end;
  run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    Replica replica(communicator, model.layers, options);
    if (!start.empty()) replica.load_state(start, first);
    EXPECT_EQ(replica.steps_done(), first);
    for (int step = first; step < first + steps; ++step) {
      const auto pieces = pieces_of(11, ranks, 1, model.inputs, options.dtype, 9 * step);
      replica.step(pieces[static_cast<size_t>(communicator.rank())], squared_error);
    }
    EXPECT_EQ(replica.steps_done(), first + steps);
    if (communicator.rank() == ranks - 1) end = replica.state();
  });
  return end;
}

std::vector<std::string> names(const State& state) {
  std::vector<std::string> out;
  for (const NamedTensor& t : state) out.push_back(t.name);
  return out;
}

TEST(State, HasNamesThatDoNotDependOnTheMesh) {
  const auto adamw = run(1, options_of(WeightPlacement::shared, Optimizer::Kind::adamw), {}, 0, 1);
  EXPECT_EQ(names(adamw),
            names(run(3, options_of(WeightPlacement::replicated, Optimizer::Kind::adamw), {}, 0, 1)));
  EXPECT_EQ(adamw[0].name, "weights.unused");
  EXPECT_EQ(adamw[5].name, "exp_avg.unused");
  EXPECT_EQ(adamw[10].name, "exp_avg_sq.unused");
  EXPECT_EQ(adamw[15].name, "optimizer_steps.unused");
  EXPECT_EQ(adamw[15].tensor.item<int64_t>(), 0) << "left out of every update";
  EXPECT_EQ(adamw[16].tensor.item<int64_t>(), 1);
  const auto sgd =
      run(2, options_of(WeightPlacement::shared, Optimizer::Kind::sgd), {}, 0, 1, small_models()[2]);
  EXPECT_EQ(sgd[6].name, "momentum.net.left.weight");
  EXPECT_EQ(sgd.back().name, "others.net.scale");
}

TEST(State, GoesOnWithTheSameRanksBitForBitAndWithOthersWithinRounding) {
  for (const auto weights : {WeightPlacement::shared, WeightPlacement::replicated}) {
    for (const auto kind : {Optimizer::Kind::sgd, Optimizer::Kind::adamw}) {
      const ReplicaOptions options = options_of(weights, kind);
      const State unbroken = run(3, options, {}, 0, 5);
      const State half = run(3, options, {}, 0, 2);
      EXPECT_TRUE(bitwise_equal(copies_of(run(3, options, half, 2, 3)), copies_of(unbroken)));
      EXPECT_LE(relative_difference(copies_of(run(2, options, half, 2, 3)), copies_of(unbroken)), 1e-10);
    }
  }
}

TEST(State, IsACopy) {
  run_thread_ranks(2, {}, [&](Communicator& communicator) {
    const SmallModel model = mlp();
    Replica replica(communicator, model.layers, {});
    const auto before = copies_of(replica.parameters());
    const State state = replica.state();
    for (const NamedTensor& part : state) part.tensor.fill_(7);
    communicator.barrier();
    EXPECT_TRUE(bitwise_equal(copies_of(replica.parameters()), before));
  });
}

TEST(State, SaysWhatDoesNotFit) {
  const ReplicaOptions options = options_of(WeightPlacement::shared, Optimizer::Kind::adamw);
  State state = run(1, options, {}, 0, 1);
  state[0].name = "weights.unusd";
  state[1].tensor = at::zeros({2, 2}, at::TensorOptions().dtype(at::kDouble));
  run_thread_ranks(1, {}, [&](Communicator& communicator) {
    Replica replica(communicator, small_models()[1].layers, options);
    const auto before = copies_of(replica.parameters());
    try {
      replica.load_state(state, 1);
      FAIL() << "a state with another name and another shape";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("3 differences"), std::string::npos) << text;
      EXPECT_NE(text.find("missing: weights.unused (3)"), std::string::npos) << text;
      EXPECT_NE(text.find("weights.first.weight has shape (2, 2), the model's is (6, 5)"), std::string::npos)
          << text;
      EXPECT_NE(text.find("unexpected: weights.unusd (did you mean \"weights.unused\"?)"), std::string::npos)
          << text;
    }
    EXPECT_TRUE(bitwise_equal(copies_of(replica.parameters()), before)) << "nothing is loaded by halves";
  });
}

}  // namespace
}  // namespace troika::test

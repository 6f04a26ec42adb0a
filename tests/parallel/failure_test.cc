// What goes wrong is named, alike on all ranks, and leaves a replica that goes on.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/small_models.h"
#include "troika/base/error.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"

namespace troika::test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <typename Kind>
std::string what_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Kind& error) {
    return error.what();
  }
  return "";
}

struct LogImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return torch::log(x); }
};

class NonFiniteLoss : public testing::TestWithParam<WeightPlacement> {};
INSTANTIATE_TEST_SUITE_P(Both, NonFiniteLoss,
                         testing::Values(WeightPlacement::shared, WeightPlacement::replicated));

TEST_P(NonFiniteLoss, IsNamedAlikeOnAllRanksAndChangesNothing) {
  at::set_num_threads(1);
  const std::vector<Layer> layers{layer<torch::nn::LinearImpl>("in", kFeatures, 4),
                                  layer<torch::nn::SigmoidImpl>("squash"), layer<LogImpl>("log"),
                                  layer<torch::nn::LinearImpl>("out", 4, 1)};
  constexpr int kRanks = 3;
  ReplicaOptions options;
  options.weights = GetParam();
  options.bucket_bytes = 64;
  const auto good = pieces_of(12, kRanks, 2);
  auto bad = good;
  bad[1][1].inputs[0] = torch::full({2, kFeatures}, 1e30);  // the sigmoid underflows to 0, its log is -inf

  std::vector<std::string> messages(kRanks);
  std::vector<std::vector<at::Tensor>> ends(kRanks);
  run_thread_ranks(kRanks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const auto rank = static_cast<size_t>(communicator.rank());
    Replica replica(communicator, layers, options);
    // All weights -1, so that large inputs saturate to the bad side.
    replica.step(good[rank], squared_error);
    auto state = replica.state();
    for (NamedTensor& part : state) {
      if (part.name == "weights.in.weight") part.tensor.fill_(-1);
    }
    replica.load_state(state, 1);
    const auto before = copies_of(replica.parameters());
    messages[rank] = what_of<Error>([&] { replica.step(bad[rank], squared_error); });
    EXPECT_TRUE(bitwise_equal(copies_of(replica.parameters()), before)) << "rank " << rank;
    EXPECT_EQ(replica.steps_done(), 1);
    communicator.barrier();
    replica.step(good[rank], squared_error);
    ends[rank] = copies_of(replica.parameters());
  });
  EXPECT_TRUE(has(messages[0], "step 2: the loss is not finite (rank 1, micro-batch 1)")) << messages[0];
  EXPECT_TRUE(has(messages[0], "the output of layer \"log\"")) << messages[0];
  EXPECT_EQ(messages[1], messages[0]);
  EXPECT_EQ(messages[2], messages[0]);
  EXPECT_TRUE(at::isfinite(ends[0][0]).all().item<bool>());
  EXPECT_TRUE(bitwise_equal(ends[0], ends[1])) << "no gradient is left over from the failed step";
  EXPECT_TRUE(bitwise_equal(ends[0], ends[2]));
}

TEST_P(NonFiniteLoss, InputsParametersAndTargetsAreToldApart) {
  const auto message = [&](const std::function<void(Replica&, Batch&)>& spoil) {
    return what_of<Error>([&] {
      run_thread_ranks(2, {}, [&](Communicator& communicator) {
        ReplicaOptions options;
        options.weights = GetParam();
        Replica replica(communicator, mlp().layers, options);
        Batch batch = rows({0, 4});
        communicator.barrier();
        if (communicator.rank() == 1) spoil(replica, batch);
        communicator.barrier();
        replica.step({&batch, 1}, squared_error);
      });
    });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(
      has(message([&](Replica&, Batch& b) { b.inputs[0][1][2] = nan; }), "is in input 0 of the model"));
  EXPECT_TRUE(has(message([&](Replica&, Batch& b) { b.target[3][0] = nan; }), "is in the target"));
  EXPECT_TRUE(has(message([&](Replica& r, Batch&) { r.parameters()[2].tensor.fill_(nan); }),
                  "is in parameter \"mid.weight\""));
}

TEST_P(NonFiniteLoss, AGradientThatIsNotFiniteIsNamedToo) {
  const Loss loss = [](const Tensors& outputs, const Batch& batch) {
    // 0, with an infinite slope
    return LossValue{(outputs[0] - outputs[0].detach()).abs().sqrt().sum(),
                     static_cast<double>(batch.samples)};
  };
  const std::string text = what_of<Error>([&] {
    run_thread_ranks(2, {}, [&](Communicator& communicator) {
      ReplicaOptions options;
      options.weights = GetParam();
      Replica replica(communicator, mlp().layers, options);
      const Batch batch = rows({0, 4});
      replica.step({&batch, 1}, loss);
    });
  });
  EXPECT_TRUE(has(text, "step 1: the loss is finite but the gradient of parameter \"in.weight\" is not"))
      << text;
}

std::string construction_error(const std::vector<Layer>& layers, int ranks,
                               const ReplicaOptions& options = {}) {
  return what_of<UsageError>([&] {
    run_thread_ranks(ranks, {},
                     [&](Communicator& communicator) { Replica replica(communicator, layers, options); });
  });
}

TEST(Refused, BatchNormOverRanksAndMicroBatches) {
  auto layers = mlp().layers;
  layers.insert(layers.begin() + 1, layer<torch::nn::BatchNorm1dImpl>("norm", 7));
  EXPECT_TRUE(has(construction_error(layers, 2), "layer \"norm\" is a BatchNorm"));
  run_thread_ranks(1, {}, [&](Communicator& communicator) {
    Replica replica(communicator, layers, {});
    const auto two = pieces_of(8, 1, 2)[0];
    EXPECT_TRUE(
        has(what_of<UsageError>([&] { replica.step(two, squared_error); }), "layer \"norm\" is a BatchNorm"));
    const auto one = pieces_of(8, 1, 1)[0];
    EXPECT_GT(replica.step(one, squared_error).loss, 0);
  });
}

struct DrawingImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x * torch::rand_like(x); }
};

TEST(Refused, RandomNumbersOverRanks) {
  auto layers = mlp().layers;
  layers.insert(layers.begin() + 2, layer<DrawingImpl>("noise"));
  const auto train = [&](int ranks) {
    return what_of<UsageError>([&] {
      run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
        Replica replica(communicator, layers, {});
        const auto pieces = pieces_of(8, ranks, 1);
        replica.step(pieces[static_cast<size_t>(communicator.rank())], squared_error);
      });
    });
  };
  EXPECT_TRUE(has(train(2), "layer \"noise\" draws random numbers in forward")) << train(2);
  EXPECT_EQ(train(1), "");
}

TEST(Refused, ModelsThatDifferBetweenRanks) {
  std::atomic<int> calls = 0;
  const Layer shifting{"shift",
                       [&] { return layer<torch::nn::LinearImpl>("shift", kFeatures, 1 + calls++).make(); }};
  EXPECT_TRUE(has(construction_error({shifting}, 2), "must build the same module on every rank"));
  ReplicaOptions replicated;
  replicated.weights = WeightPlacement::replicated;
  const Layer own_numbers{"own", [&] {
                            LiveLayer live = layer<torch::nn::LinearImpl>("own", kFeatures, 1).make();
                            const torch::NoGradGuard no_grad;
                            live.module->parameters()[1].fill_(calls++);
                            return live;
                          }};
  EXPECT_TRUE(has(construction_error({own_numbers}, 2, replicated),
                  "parameter \"own.bias\" starts with other numbers on rank 1"));
  const LiveLayer one_module = layer<torch::nn::LinearImpl>("one", kFeatures, 1).make();
  EXPECT_TRUE(
      has(construction_error({{"one", [&] { return one_module; }}}, 2), "must make a new module each time"));
  EXPECT_TRUE(has(construction_error({layer<torch::nn::ReLUImpl>("relu")}, 1), "there is nothing to train"));
}

TEST(Refused, LossesThatAreNone) {
  run_thread_ranks(1, {}, [&](Communicator& communicator) {
    Replica replica(communicator, mlp().layers, {});
    const Batch batch = rows({0, 4});
    const auto message = [&](const Loss& loss) {
      return what_of<UsageError>([&] { replica.step({&batch, 1}, loss); });
    };
    EXPECT_TRUE(has(message([](const Tensors& o, const Batch&) {
                      return LossValue{o[0], 4};
                    }),
                    "it gives 4 numbers"));
    EXPECT_TRUE(has(message([](const Tensors& o, const Batch&) {
                      return LossValue{o[0].sum().detach(), 4};
                    }),
                    "does not depend on any parameter"));
    EXPECT_TRUE(has(message([](const Tensors& o, const Batch&) {
                      return LossValue{o[0].sum(), -1};
                    }),
                    "the weight -1"));
    // A step that threw leaves nothing behind: the next one is the reference's first.
    MicroBatchedReference reference(mlp().layers, {}, 1);
    EXPECT_EQ(replica.step({&batch, 1}, squared_error).loss, reference.step({{batch}}, squared_error).loss);
    EXPECT_TRUE(bitwise_equal(copies_of(replica.parameters()), copies_of(reference.parameters())));
  });
}

TEST(Step, WithoutWeightChangesNothing) {
  for (const int ranks : {1, 2}) {
    for (const auto weights : {WeightPlacement::shared, WeightPlacement::replicated}) {
      run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
        ReplicaOptions options;
        options.weights = weights;
        Replica replica(communicator, mlp().layers, options);
        const auto before = copies_of(replica.parameters());
        const std::vector<Batch> empty{rows({0, 0})};
        const StepResult result = replica.step(empty, squared_error);
        EXPECT_EQ(result.loss, 0);
        EXPECT_EQ(result.weight, 0);
        EXPECT_EQ(replica.steps_done(), 0);
        EXPECT_TRUE(bitwise_equal(copies_of(replica.parameters()), before));
      });
    }
  }
}

TEST(Step, RecordsWhatItDoes) {
  for (const auto weights : {WeightPlacement::shared, WeightPlacement::replicated}) {
    run_thread_ranks(2, {}, [&](Communicator& communicator) {
      ReplicaOptions options;
      options.weights = weights;
      Replica replica(communicator, mlp().layers, options);
      std::vector<Span> spans;
      StepProbe probe;
      probe.spans = &spans;
      probe.spans_from = Clock::now();
      const auto pieces = pieces_of(8, 2, 2);
      replica.step(pieces[static_cast<size_t>(communicator.rank())], squared_error, probe);
      std::vector<std::pair<Op, int>> actions;
      double at = 0;
      for (const Span& span : spans) {
        actions.emplace_back(span.action.op, span.action.micro_batch);
        EXPECT_EQ(span.rank, communicator.rank());
        EXPECT_LE(at, span.start_s);
        EXPECT_LE(span.start_s, span.end_s);
        at = span.end_s;
      }
      EXPECT_EQ(actions, (std::vector<std::pair<Op, int>>{{Op::forward, 0},
                                                          {Op::backward, 0},
                                                          {Op::forward, 1},
                                                          {Op::backward, 1},
                                                          {Op::reduce_gradients, 0},
                                                          {Op::optimizer_step, 0}}));
    });
  }
}

TEST(Evaluate, UsesEvaluationModeAndChangesNothing) {
  auto layers = mlp().layers;
  layers.insert(layers.begin() + 2, layer<torch::nn::DropoutImpl>("drop", 0.5));
  run_thread_ranks(1, {}, [&](Communicator& communicator) {
    Replica replica(communicator, layers, {});
    const Batch batch = rows({0, 6});
    const Tensors once = replica.evaluate(batch.inputs), again = replica.evaluate(batch.inputs);
    EXPECT_TRUE(torch::equal(once[0], again[0])) << "no dropout";
    EXPECT_FALSE(once[0].requires_grad());
    double first = replica.step({&batch, 1}, squared_error).loss;
    EXPECT_NE(first, (once[0] - batch.target).square().mean().item<double>())
        << "training mode is back: dropout";
  });
}

}  // namespace
}  // namespace troika::test

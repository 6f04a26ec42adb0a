// The update with clipping, weight decay of matrices and a rate per step: bit for bit the reference's, and
// within rounding a loop of torch's own optimizers and clip_grad_norm_.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/error_of.h"
#include "support/small_models.h"
#include "support/torch_optimizer.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"

namespace troika::test {
namespace {

constexpr int kSteps = 3;
constexpr int64_t kBatch = 13;

double rate_of(int step) { return 0.02 / (step + 1); }

ReplicaOptions options_of(Optimizer::Kind kind, double clip_norm, double weight_decay,
                          WeightPlacement placement) {
  ReplicaOptions options;
  options.optimizer.kind = kind;
  options.optimizer.weight_decay = weight_decay;
  if (kind == Optimizer::Kind::sgd) options.optimizer.momentum = 0.9;
  options.clip_norm = clip_norm;
  options.weights = placement;
  options.dtype = at::kDouble;
  options.seed = 3;
  options.bucket_bytes = 128;
  return options;
}

/// What a run leaves behind, step by step.
struct Record {
  std::vector<double> norms;
  std::vector<std::vector<at::Tensor>> gradients, weights;
};

std::vector<std::vector<Batch>> pieces_of_step(const SmallModel& model, int ranks, int step,
                                               at::ScalarType dtype) {
  return pieces_of(kBatch, ranks, 2, model.inputs, dtype, 7 * step);
}

std::vector<Record> run_engine(const SmallModel& model, int ranks, const ReplicaOptions& options) {
  std::vector<Record> records(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const auto rank = static_cast<size_t>(communicator.rank());
    Replica replica(communicator, model.layers, options);
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    for (int step = 0; step < kSteps; ++step) {
      replica.set_learning_rate(rate_of(step));
      const auto pieces = pieces_of_step(model, ranks, step, options.dtype);
      records[rank].norms.push_back(replica.step(pieces[rank], squared_error, probe).grad_norm);
      records[rank].gradients.push_back(mean);
      records[rank].weights.push_back(copies_of(replica.parameters()));
      communicator.barrier();  // shared weights: no rank goes on while another still copies
    }
  });
  return records;
}

Record run_reference(const SmallModel& model, int ranks, const ReplicaOptions& options) {
  Record record;
  MicroBatchedReference reference(model.layers, options, ranks);
  std::vector<at::Tensor> mean;
  for (int step = 0; step < kSteps; ++step) {
    reference.set_learning_rate(rate_of(step));
    const auto pieces = pieces_of_step(model, ranks, step, options.dtype);
    record.norms.push_back(reference.step(pieces, squared_error, &mean).grad_norm);
    record.gradients.push_back(mean);
    record.weights.push_back(copies_of(reference.parameters()));
  }
  return record;
}

/// The whole batch at once, as a person writes it with torch.
Record run_torch(const SmallModel& small, const ReplicaOptions& options) {
  Record record;
  const Model model(small.layers, options.seed, options.dtype);
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& p : model.parameters()) parameters.push_back(p.tensor);
  const auto optimizer = torch_optimizer(parameters, options.optimizer);
  for (int step = 0; step < kSteps; ++step) {
    for (auto& group : optimizer->param_groups()) group.options().set_lr(rate_of(step));
    optimizer->zero_grad();
    const Batch batch = rows({7 * step, 7 * step + kBatch}, small.inputs, options.dtype);
    const LossValue value = squared_error(model.forward(batch.inputs), batch);
    (value.sum / value.weight).backward();
    record.gradients.emplace_back();
    for (const at::Tensor& p : parameters) {
      record.gradients.back().push_back(p.grad().defined() ? p.grad().clone() : torch::zeros_like(p));
    }
    const double clip = options.clip_norm > 0 ? options.clip_norm : 1e300;
    const double norm = torch::nn::utils::clip_grad_norm_(parameters, clip);
    record.norms.push_back(options.clip_norm > 0 ? norm : 0);
    optimizer->step();
    record.weights.push_back(copies_of(model.parameters()));
  }
  return record;
}

void check(const SmallModel& model, int ranks, const ReplicaOptions& options, const std::string& what) {
  const Record reference = run_reference(model, ranks, options), torch = run_torch(model, options);
  const std::vector<Record> engine = run_engine(model, ranks, options);
  for (size_t step = 0; step < kSteps; ++step) {
    for (const Record& rank : engine) {
      EXPECT_EQ(rank.norms[step], reference.norms[step]) << what;
      EXPECT_TRUE(bitwise_equal(rank.gradients[step], reference.gradients[step])) << what;
      EXPECT_TRUE(bitwise_equal(rank.weights[step], reference.weights[step])) << what;
    }
    const double tolerance = 1e-12;
    EXPECT_NEAR(reference.norms[step], torch.norms[step], tolerance * torch.norms[step]) << what;
    EXPECT_LE(relative_difference(reference.gradients[step], torch.gradients[step]), tolerance) << what;
    EXPECT_LE(relative_difference(reference.weights[step], torch.weights[step]), tolerance) << what;
  }
}

class Clip : public testing::TestWithParam<WeightPlacement> {};
INSTANTIATE_TEST_SUITE_P(Both, Clip, testing::Values(WeightPlacement::shared, WeightPlacement::replicated));

// 0.05 clips every step of these models, 1e3 none.
TEST_P(Clip, EqualsTheReferenceBitwiseAndTorchWithinRounding) {
  at::set_num_threads(1);
  const std::vector<SmallModel> models = small_models();
  for (const auto kind : {Optimizer::Kind::sgd, Optimizer::Kind::adam, Optimizer::Kind::adamw}) {
    for (const double clip_norm : {0.0, 0.05, 1e3}) {
      for (const double weight_decay : {0.0, 0.5}) {
        for (const int ranks : {1, 2, 3}) {
          const SmallModel& model = models[static_cast<size_t>(ranks)];  // unused, two_inputs, reused
          check(model, ranks, options_of(kind, clip_norm, weight_decay, GetParam()),
                fmt::format("{}, optimizer {}, clip {}, decay {}, {} ranks", model.name,
                            static_cast<int>(kind), clip_norm, weight_decay, ranks));
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Several blocks and slices inside parameters, in float32.
TEST_P(Clip, WideModelIsBitwiseTheReference) {
  at::set_num_threads(1);
  const SmallModel model = mlp(130);
  for (const int ranks : {2, 3}) {
    ReplicaOptions options = options_of(Optimizer::Kind::adamw, 0.05, 0.1, GetParam());
    options.dtype = at::kFloat;
    const Record reference = run_reference(model, ranks, options);
    for (const Record& rank : run_engine(model, ranks, options)) {
      EXPECT_EQ(rank.norms, reference.norms);
      EXPECT_GT(rank.norms[0], 0.05);
      EXPECT_TRUE(bitwise_equal(rank.weights[kSteps - 1], reference.weights[kSteps - 1]));
    }
  }
}

// Whole numbers add up exactly in any order, so here the number of ranks can't be seen in any bit.
TEST_P(Clip, TheNormHasTheSameBitsForAnyNumberOfRanks) {
  at::set_num_threads(1);
  const std::vector<Layer> layers{layer<torch::nn::LinearImpl>("in", 4100, 3)};
  const Loss loss = [](const Tensors& outputs, const Batch& batch) {
    return LossValue{(outputs[0] * batch.target).sum(), static_cast<double>(batch.samples)};
  };
  std::vector<double> norms;
  for (const int ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
      at::set_num_threads(1);
      ReplicaOptions options;
      options.weights = GetParam();
      options.clip_norm = 1;
      Replica replica(communicator, layers, options);
      const Range part = piece_of({0, 12}, 1, 0, ranks, communicator.rank());
      const auto numbers = [&](int64_t columns) {
        const at::Tensor all = torch::arange(12 * columns).view({12, columns}).mul(7).remainder(11);
        return all.narrow(0, part.begin, part.size()).to(torch::kFloat);
      };
      const Batch batch{{numbers(4100)}, numbers(3), part.size()};
      const double norm = replica.step({&batch, 1}, loss).grad_norm;
      if (communicator.rank() == 0) norms.push_back(norm);
    });
  }
  EXPECT_GT(norms[0], 1);
  EXPECT_EQ(norms, std::vector<double>(4, norms[0]));
}

TEST_P(Clip, AGradientThatIsNotFiniteChangesNothingAndIsNamedOnEveryRank) {
  at::set_num_threads(1);
  constexpr int kRanks = 3;
  const Loss steep = [](const Tensors& outputs, const Batch& batch) {
    // 0, with an infinite slope
    return LossValue{(outputs[0] - outputs[0].detach()).abs().sqrt().sum(),
                     static_cast<double>(batch.samples)};
  };
  const auto pieces = pieces_of(12, kRanks, 1);
  std::vector<std::string> messages(kRanks);
  std::vector<std::vector<at::Tensor>> ends(kRanks);
  run_thread_ranks(kRanks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const auto rank = static_cast<size_t>(communicator.rank());
    ReplicaOptions options;
    options.weights = GetParam();
    options.clip_norm = 1;
    Replica replica(communicator, mlp().layers, options);
    replica.step(pieces[rank], squared_error);
    const auto before = replica.state();
    messages[rank] = error_of([&] { replica.step(pieces[rank], rank == 1 ? steep : squared_error); });
    const auto after = replica.state();
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_TRUE(torch::equal(before[i].tensor, after[i].tensor)) << before[i].name;
    }
    EXPECT_EQ(replica.steps_done(), 1);
    communicator.barrier();
    replica.step(pieces[rank], squared_error);
    ends[rank] = copies_of(replica.parameters());
  });
  EXPECT_EQ(messages[0].find("step 2: the loss is finite but the gradient of parameter \"in.weight\" is not. "
                             "No weight was changed."),
            0u)
      << messages[0];
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(messages[rank], messages[0]);
    EXPECT_TRUE(torch::isfinite(ends[rank][0]).all().item<bool>());
    EXPECT_TRUE(bitwise_equal(ends[rank], ends[0])) << "no gradient is left over from the failed step";
  }
}

// The rate is no part of the state: who resumes sets it, and goes on bit for bit.
TEST_P(Clip, ResumesWithARatePerStep) {
  at::set_num_threads(1);
  const SmallModel model = mlp();
  const ReplicaOptions options = options_of(Optimizer::Kind::adam, 0.05, 0.1, GetParam());
  run_thread_ranks(2, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const auto rank = static_cast<size_t>(communicator.rank());
    const auto step = [&](Replica& replica, int number) {
      replica.set_learning_rate(rate_of(number));
      replica.step(pieces_of_step(model, 2, number, options.dtype)[rank], squared_error);
    };
    Replica unbroken(communicator, model.layers, options);
    for (int number = 0; number < 2; ++number) step(unbroken, number);
    const auto state = unbroken.state();
    for (int number = 2; number < 5; ++number) step(unbroken, number);

    Replica resumed(communicator, model.layers, options);
    resumed.load_state(state, 2);
    for (int number = 2; number < 5; ++number) step(resumed, number);
    EXPECT_TRUE(bitwise_equal(copies_of(resumed.parameters()), copies_of(unbroken.parameters())));

    Replica late(communicator, model.layers, options);
    late.load_state(state, 2);
    for (int number = 2; number < 5; ++number) {
      late.set_learning_rate(rate_of(number - 1));
      late.step(pieces_of_step(model, 2, number, options.dtype)[rank], squared_error);
    }
    EXPECT_FALSE(bitwise_equal(copies_of(late.parameters()), copies_of(unbroken.parameters())));
    communicator.barrier();  // shared weights: nobody leaves while another still compares
  });
}

TEST_P(Clip, ANegativeNormIsRefused) {
  for (const double clip_norm : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    const std::string message = error_of([&] {
      run_thread_ranks(1, {}, [&](Communicator& communicator) {
        Replica(communicator, mlp().layers, options_of(Optimizer::Kind::sgd, clip_norm, 0, GetParam()));
      });
    });
    EXPECT_NE(message.find("it must be a number above 0, or 0 for no clipping"), std::string::npos)
        << message;
  }
}

TEST_P(Clip, TimeWaitedIsOfTheOthersOnly) {
  for (const int ranks : {1, 2}) {
    run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
      ReplicaOptions options;
      options.weights = GetParam();
      Replica replica(communicator, mlp().layers, options);
      const Batch batch = rows({0, 4});
      const StepResult result = replica.step({&batch, 1}, squared_error);
      if (ranks == 1) {
        EXPECT_EQ(result.waited_seconds, 0);
      } else {
        EXPECT_GT(result.waited_seconds, 0);
      }
      EXPECT_EQ(result.grad_norm, 0) << "not clipped";
    });
  }
}

}  // namespace
}  // namespace troika::test

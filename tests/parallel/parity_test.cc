// Parallel equals serial: bitwise the micro-batched reference, and within rounding a plain torch::optim loop
// over the whole batch that shares nothing with the engine.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/small_models.h"
#include "support/torch_optimizer.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"

namespace troika::test {
namespace {

constexpr int kSteps = 3;

std::vector<std::pair<std::string, Optimizer>> optimizers() {
  Optimizer sgd, nesterov, adam, adamw;
  sgd.kind = nesterov.kind = Optimizer::Kind::sgd;
  sgd.learning_rate = nesterov.learning_rate = 0.05;
  nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  nesterov.weight_decay = adam.weight_decay = adamw.weight_decay = 0.01;
  adam.kind = Optimizer::Kind::adam;
  adamw.kind = Optimizer::Kind::adamw;
  adam.learning_rate = adamw.learning_rate = 0.01;
  return {{"sgd", sgd}, {"nesterov", nesterov}, {"adam", adam}, {"adamw", adamw}};
}

/// What a run leaves behind, step by step.
struct Record {
  std::vector<double> losses;
  std::vector<std::vector<at::Tensor>> gradients, weights;
};

struct Case {
  const SmallModel& model;
  int ranks, micro_batches;
  int64_t batch;
  ReplicaOptions options;
  Loss loss = squared_error;

  std::vector<std::vector<Batch>> pieces(int step) const {
    return pieces_of(batch, ranks, micro_batches, model.inputs, options.dtype, 7 * step);
  }
};

std::vector<Record> run_engine(const Case& c) {
  std::vector<Record> records(static_cast<size_t>(c.ranks));
  run_thread_ranks(c.ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const auto rank = static_cast<size_t>(communicator.rank());
    Replica replica(communicator, c.model.layers, c.options);
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    for (int step = 0; step < kSteps; ++step) {
      const StepResult result = replica.step(c.pieces(step)[rank], c.loss, probe);
      records[rank].losses.push_back(result.loss);
      records[rank].gradients.push_back(mean);
      records[rank].weights.push_back(copies_of(replica.parameters()));
      communicator.barrier();  // shared weights: no rank goes on while another still copies
    }
  });
  return records;
}

Record run_reference(const Case& c) {
  Record record;
  MicroBatchedReference reference(c.model.layers, c.options, c.ranks);
  std::vector<at::Tensor> mean;
  for (int step = 0; step < kSteps; ++step) {
    record.losses.push_back(reference.step(c.pieces(step), c.loss, &mean).loss);
    record.gradients.push_back(mean);
    record.weights.push_back(copies_of(reference.parameters()));
  }
  return record;
}

/// The whole batch in one piece, torch's own mean and optimizer. In float32 an Adam step turns the rounding
/// of a tiny gradient into a step of full size, so there the optimizer is given the engine's gradients
/// (`given`).
Record run_plain(const Case& c, const Record* given) {
  Record record;
  const Model model(c.model.layers, c.options.seed, c.options.dtype);
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& p : model.parameters()) parameters.push_back(p.tensor);
  const auto optimizer = torch_optimizer(parameters, c.options.optimizer);
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    const Batch batch = rows({7 * step, 7 * step + c.batch}, c.model.inputs, c.options.dtype);
    const LossValue value = c.loss(model.forward(batch.inputs), batch);
    const at::Tensor loss = value.sum / value.weight;
    loss.backward();
    record.losses.push_back(loss.item<double>());
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].grad();
      gradients.push_back(gradient.defined() ? gradient.clone() : torch::zeros_like(parameters[i]));
      if (gradient.defined() && given != nullptr) {
        parameters[i].mutable_grad().copy_(given->gradients[static_cast<size_t>(step)][i]);
      }
    }
    record.gradients.push_back(gradients);
    optimizer->step();
    record.weights.push_back(copies_of(model.parameters()));
  }
  return record;
}

void expect_bitwise(const Record& a, const Record& b, const std::string& what) {
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(a.losses[step], b.losses[step]) << what << ", loss of step " << step + 1;
    EXPECT_TRUE(bitwise_equal(a.gradients[step], b.gradients[step]))
        << what << ", gradients of step " << step + 1;
    EXPECT_TRUE(bitwise_equal(a.weights[step], b.weights[step])) << what << ", weights of step " << step + 1;
  }
}

void expect_near(const Record& a, const Record& b, double tolerance, const std::string& what) {
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(a.losses[step], b.losses[step], tolerance * std::abs(b.losses[step])) << what;
    EXPECT_LE(relative_difference(a.gradients[step], b.gradients[step]), tolerance)
        << what << ", gradients of step " << step + 1;
    EXPECT_LE(relative_difference(a.weights[step], b.weights[step]), tolerance)
        << what << ", weights of step " << step + 1;
  }
}

void check(const Case& c, const std::string& name) {
  Record reference = run_reference(c);
  const Record plain = run_plain(c, c.options.dtype == at::kFloat ? &reference : nullptr);
  expect_near(reference, plain, c.options.dtype == at::kDouble ? 1e-10 : 1e-5,
              name + ", reference and plain");
  for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
    Case placed = c;
    placed.options.weights = placement;
    const std::vector<Record> records = run_engine(placed);
    for (size_t rank = 0; rank < records.size(); ++rank) {
      expect_bitwise(records[rank], reference,
                     fmt::format("{}, {}, rank {}", name,
                                 placement == WeightPlacement::shared ? "shared" : "replicated", rank));
    }
  }
}

class Parity : public testing::TestWithParam<int> {};

// Every model, number of ranks, of micro-batches, batch and optimizer; a bucket holds one or two parameters.
TEST_P(Parity, EqualsTheReferenceBitwiseAndThePlainRunWithinRounding) {
  at::set_num_threads(1);
  for (const SmallModel& model : small_models()) {
    for (const auto& [optimizer_name, optimizer] : optimizers()) {
      for (const int micro_batches : {1, 2, 3}) {
        for (const int64_t batch : {1, 2, 5, 64, 67}) {
          for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
            Case c{model, GetParam(), micro_batches, batch, {}};
            c.options.optimizer = optimizer;
            c.options.dtype = dtype;
            c.options.seed = 3;
            c.options.bucket_bytes = 128;
            check(c, fmt::format("{}, {}, {} micro-batches, batch {}, {}", model.name, optimizer_name,
                                 micro_batches, batch, dtype == at::kFloat ? "float32" : "float64"));
            if (HasFailure()) return;  // the first of thousands says enough
          }
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Parity, testing::Values(1, 2, 3, 4));

TEST(ParityWeights, WeightedSamplesKeepTheExactMean) {
  at::set_num_threads(1);
  const SmallModel model = mlp();
  for (const int ranks : {1, 2, 3}) {
    Case c{model, ranks, 2, 13, {}};
    c.options.dtype = at::kDouble;
    c.loss = weighted_squared_error;
    check(c, fmt::format("weighted, {} ranks", ranks));
  }
}

// Longer than one vector block and several buckets, so that slices and buckets are cut inside the model.
TEST(ParityWeights, WideModelIsCutInsideParameters) {
  at::set_num_threads(1);
  const SmallModel model = mlp(130);
  for (const int ranks : {2, 3}) {
    Case c{model, ranks, 1, 32, {}};
    c.options.bucket_bytes = 4096;
    check(c, fmt::format("wide, {} ranks", ranks));
  }
}

}  // namespace
}  // namespace troika::test

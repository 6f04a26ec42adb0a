// Pipelines equal the micro-batched reference bit for bit: every synchronous schedule of the catalogue, with
// every number of lanes, micro-batches and data ranks, uneven batches, dropout and skips.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/pipeline_chain.h"
#include "support/error_of.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"

namespace troika::test {
namespace {

constexpr int kSteps = 2;

struct Case {
  std::string schedule;
  int lanes = 1, micro_batches = 1, data = 1;
  int64_t batch = 7;
  ReplicaOptions options;
  std::vector<Layer> layers;
  bool recompute = false;

  std::string name() const {
    return fmt::format("{}, {} lanes, {} micro-batches, {} data ranks, batch {}{}{}", schedule, lanes,
                       micro_batches, data, batch, recompute ? ", recompute" : "",
                       options.weights == WeightPlacement::shared ? "" : ", replicated");
  }
  std::vector<std::vector<Batch>> pieces(int step) const {
    return pieces_of(batch, data, micro_batches, 1, options.dtype, 7 * step);
  }
  PipelineOptions pipeline() const {
    Schedule made = make_schedule(schedule, {.lanes = lanes, .micro_batches = micro_batches});
    if (recompute) {
      std::vector<int> all;
      for (int s = 0; s < made.num_stages(); ++s) all.push_back(s);
      made = with_recompute(made, all);
    }
    return {made, even_starts(layers.size(), made.num_stages())};
  }
};

Record run_engine(const Case& c) {
  Record record;
  record.losses.assign(kSteps, 0);
  record.norms.assign(kSteps, 0);
  record.gradients.resize(kSteps);
  record.weights.resize(kSteps);
  std::mutex mutex;
  run_thread_ranks(c.data * c.lanes, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    ReplicaOptions options = c.options;
    options.mesh = {c.data, c.lanes, 1};
    options.pipeline = c.pipeline();
    const int data_rank = options.mesh.coordinate(communicator.rank()).data;
    Replica replica(communicator, c.layers, options);
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    for (int step = 0; step < kSteps; ++step) {
      const StepResult result =
          replica.step(c.pieces(step)[static_cast<size_t>(data_rank)], squared_error, probe);
      {
        const std::lock_guard lock(mutex);
        const auto at = static_cast<size_t>(step);
        record.losses[at] = result.loss;
        record.norms[at] = result.grad_norm;
        add(record.gradients[at], replica.parameters(), mean, "gradient of ");
        add(record.weights[at], replica.parameters(), copies_of(replica.parameters()), "weight ");
      }
      communicator.barrier();  // shared weights: no rank goes on while another still copies
    }
  });
  return record;
}

Record run_reference(const Case& c) {
  Record record;
  MicroBatchedReference reference(c.layers, c.options, c.data);
  std::vector<at::Tensor> mean;
  for (int step = 0; step < kSteps; ++step) {
    const StepResult result = reference.step(c.pieces(step), squared_error, &mean);
    record.losses.push_back(result.loss);
    record.norms.push_back(result.grad_norm);
    add(record.gradients.emplace_back(), reference.parameters(), mean, "");
    add(record.weights.emplace_back(), reference.parameters(), copies_of(reference.parameters()), "");
  }
  return record;
}

void check(const Case& c) {
  SCOPED_TRACE(c.name());
  const Record engine = run_engine(c), reference = run_reference(c);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(engine.losses[step], reference.losses[step]) << "loss of step " << step;
    EXPECT_EQ(engine.norms[step], reference.norms[step]) << "norm of step " << step;
    ASSERT_EQ(engine.gradients[step].size(), reference.gradients[step].size());
    for (const auto& [name, gradient] : reference.gradients[step]) {
      EXPECT_TRUE(bitwise_equal({engine.gradients[step].at(name)}, {gradient}))
          << "gradient of " << name << ", step " << step;
      EXPECT_TRUE(bitwise_equal({engine.weights[step].at(name)}, {reference.weights[step].at(name)}))
          << "weight " << name << ", step " << step;
    }
  }
}

std::vector<std::string> synchronous() {
  std::vector<std::string> names;
  for (const CatalogueEntry& entry : catalogue()) {
    if (!entry.asynchronous) names.emplace_back(entry.name);
  }
  return names;
}

bool fits(const std::string& schedule, const ScheduleRequest& request) {
  try {
    make_schedule(schedule, request);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

class Pipeline : public testing::TestWithParam<std::string> {};

TEST_P(Pipeline, EqualsTheReferenceBitForBit) {
  at::set_num_threads(1);
  int checked = 0;
  for (const int lanes : {1, 2, 3, 4}) {
    for (const int micro_batches : {1, 2, 3, 5, 8}) {
      if (!fits(GetParam(), {.lanes = lanes, .micro_batches = micro_batches})) continue;
      for (const bool dropout_and_skips : {false, true}) {
        Case c{GetParam(), lanes, micro_batches, 1, 7, {}, {}};
        c.layers = chain(dropout_and_skips, dropout_and_skips);
        // With 7 samples one of 8 micro-batches has none.
        c.options.optimizer.kind = Optimizer::Kind::sgd;
        c.options.optimizer.learning_rate = 0.05;
        c.options.seed = 3;
        check(c);
        ++checked;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(checked, 16);
}
INSTANTIATE_TEST_SUITE_P(Schedules, Pipeline, testing::ValuesIn(synchronous()));

// The gradients of a skip's reads are added in one order, wherever the reads are.
TEST(PipelineSkips, ReadTwiceInAStageAndAgainLater) {
  at::set_num_threads(1);
  const auto square = [](const char* name) { return layer<torch::nn::LinearImpl>(name, kWidth, kWidth); };
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    Case c{schedule, 3, 4, 1, 9, {}, {}};
    c.layers = {layer<torch::nn::LinearImpl>("in", kFeatures, kWidth),
                layer<ForkImpl>("fork").put("early"),
                square("a"),
                layer<JoinImpl>("near").get("early"),
                layer<JoinImpl>("join").get("early"),
                square("b"),
                layer<JoinImpl>("again").get("early"),
                layer<JoinImpl>("last").get("early"),
                layer<torch::nn::LinearImpl>("out", kWidth, 1)};
    check(c);
  }
}

TEST(PipelineMesh, DataTimesPipelineWithClippingAndRecompute) {
  at::set_num_threads(1);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "zb-v"}) {
    for (const int data : {2, 3}) {
      for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
        for (const bool recompute : {false, true}) {
          Case c{schedule, 2, 4, data, 13, {}, {}};
          c.layers = chain(true, true);
          c.options.weights = placement;
          c.options.bucket_bytes = 64;
          c.options.clip_norm = 0.05;
          c.options.dtype = at::kDouble;
          c.recompute = recompute;
          check(c);
          if (HasFailure()) return;
        }
      }
    }
  }
}

/// One parameter used by three layers, another by two; with three stages the middle one owns one and uses the
/// other.
std::vector<Layer> tied_chain() {
  const auto square = [](const char* name) { return layer<torch::nn::LinearImpl>(name, kWidth, kWidth); };
  std::vector<Layer> layers;
  layers.push_back(layer<torch::nn::LinearImpl>("in", kFeatures, kWidth));
  layers.push_back(square("a"));
  layers.push_back(layer<torch::nn::TanhImpl>("tanh"));
  layers.push_back(square("b").tie("weight", "a", "weight"));
  layers.push_back(square("d"));
  layers.push_back(square("c").tie("weight", "a", "weight").tie("bias", "a", "bias"));
  layers.push_back(square("e").tie("weight", "d", "weight"));
  layers.push_back(layer<torch::nn::LinearImpl>("out", kWidth, 1));
  return layers;
}

TEST(PipelineTies, ATiedParameterIsOneWhereverItsUsesAre) {
  at::set_num_threads(1);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "zb-v"}) {
    for (const int lanes : {1, 2, 3, 4}) {
      for (const int data : {1, 2}) {
        for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
          Case c{schedule, lanes, 3, data, 11, {}, {}};
          c.layers = tied_chain();
          c.options.weights = placement;
          c.options.bucket_bytes = 64;
          c.options.clip_norm = lanes % 2 == 0 ? 0.05 : 0;
          c.options.optimizer.kind = Optimizer::Kind::adamw;
          check(c);
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace troika::test

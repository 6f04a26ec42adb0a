// Asynchronous schedules equal, step by step and bit for bit, a serial program that applies the same delayed
// updates: any number of lanes, windows and data ranks, with stashed weights at backward and at recompute.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <mutex>

#include "parallel/pipeline_chain.h"
#include "support/error_of.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/delayed_reference.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_text.h"
#include "troika/schedule/weight_versions.h"

namespace troika::test {
namespace {

struct Case {
  std::string schedule;
  int lanes = 1, micro_batches = 1, data = 1;
  std::vector<int> windows = {5, 1, 3};
  bool vertical_sync = false, recompute = false;
  int64_t batch = 7;  // with 8 pieces one has none
  ReplicaOptions options = {};
  std::vector<Layer> layers = chain(true, true);
  Lag lag = {};
  std::function<Schedule(int steps)> own = {};

  std::string name() const {
    return fmt::format("{}, {} lanes, {} micro-batches, {} data ranks{}{}{}", schedule, lanes, micro_batches,
                       data, vertical_sync ? ", vertical sync" : "", recompute ? ", recompute" : "",
                       options.weights == WeightPlacement::shared ? "" : ", replicated");
  }

  std::vector<std::vector<Batch>> pieces(int step) const {
    return pieces_of(batch, data, micro_batches, 1, options.dtype, 7 * step);
  }

  Schedule window(int steps) const {
    if (own) return own(steps);
    const bool batches = schedule == "pipedream-2bw";
    Schedule made = make_schedule(
        schedule,
        {.lanes = lanes, .micro_batches = batches ? micro_batches : steps, .updates = batches ? steps : 0});
    std::vector<int> all;
    for (int s = 0; recompute && s < made.num_stages(); ++s) all.push_back(s);
    return recompute ? with_recompute(made, all) : made;
  }

  std::vector<int64_t> starts() const { return even_starts(layers.size(), window(3).num_stages()); }

  ReplicaOptions replica_options() const {
    ReplicaOptions out = options;
    out.mesh = {data, lanes, 1};
    out.pipeline = PipelineOptions{window(2 * lanes + 1), starts(),
                                   [this](int steps) { return window(steps); }, vertical_sync};
    return out;
  }

  size_t steps() const {
    size_t count = 0;
    for (const int length : windows) count += static_cast<size_t>(length);
    return count;
  }
};

Record run_engine(const Case& c) {
  Record record;
  record.losses.assign(c.steps(), 0);
  record.norms.assign(c.steps(), 0);
  record.gradients.resize(c.steps());
  record.weights.resize(c.steps());
  std::mutex mutex;
  run_thread_ranks(c.data * c.lanes, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const ReplicaOptions options = c.replica_options();
    const auto data_rank = static_cast<size_t>(options.mesh.coordinate(communicator.rank()).data);
    Replica replica(communicator, c.layers, options);
    std::vector<at::Tensor> mean;
    int first = 0;
    for (const int length : c.windows) {
      Window window;
      window.steps = length;
      window.pieces = [&](int64_t step) {
        std::vector<Batch> pieces = c.pieces(first + static_cast<int>(step))[data_rank];
        for (Batch& piece : pieces) piece.inputs.clear(), piece.target.reset();
        return pieces;
      };
      window.load = [&](int64_t step, int64_t micro_batch) {
        return c.pieces(first + static_cast<int>(step))[data_rank][static_cast<size_t>(micro_batch)];
      };
      window.on_step = [&](int64_t step, const StepResult& result) {
        const std::lock_guard lock(mutex);
        const auto at = static_cast<size_t>(first + step);
        record.losses[at] = result.loss;
        if (options.mesh.coordinate(communicator.rank()).pipeline == 0) record.norms[at] = result.grad_norm;
        add(record.gradients[at], replica.parameters(), mean, "gradient of ");
        add(record.weights[at], replica.parameters(), copies_of(replica.parameters()), "weight ");
        add(record.weights[at], replica.others(), copies_of(replica.others()), "buffer ");
      };
      StepProbe probe;
      probe.mean_gradients = &mean;
      replica.run_window(window, squared_error, probe);
      first += length;
      communicator.barrier();
    }
    EXPECT_EQ(replica.steps_done(), static_cast<int64_t>(c.steps()));
    EXPECT_EQ(replica.state().empty(), false);
  });
  return record;
}

Record run_reference(const Case& c) {
  Record record;
  const std::vector<int64_t> starts = c.starts();
  DelayedReference reference(
      c.layers, starts, c.options, c.data,
      c.lag ? c.lag : lag_of(c.schedule, static_cast<int64_t>(starts.size()), c.vertical_sync));
  std::vector<at::Tensor> mean;
  int step = 0;
  for (const int length : c.windows) {
    for (int t = 0; t < length; ++t, ++step) {
      const StepResult result = reference.step(t, c.pieces(step), squared_error, &mean);
      MicroBatchedReference& newest = reference.newest();
      record.losses.push_back(result.loss);
      record.norms.push_back(result.grad_norm);
      add(record.gradients.emplace_back(), newest.parameters(), mean, "");
      add(record.weights.emplace_back(), newest.parameters(), copies_of(newest.parameters()), "");
      add(record.weights.back(), newest.others(), copies_of(newest.others()), "");
    }
  }
  return record;
}

void check(const Case& c) {
  SCOPED_TRACE(c.name());
  const Record engine = run_engine(c), reference = run_reference(c);
  EXPECT_EQ(engine.losses, reference.losses);
  EXPECT_EQ(engine.norms, reference.norms);
  for (size_t step = 0; step < c.steps(); ++step) {
    ASSERT_EQ(engine.weights[step].size(), reference.weights[step].size());
    for (const auto& [name, gradient] : reference.gradients[step]) {
      EXPECT_TRUE(bitwise_equal({engine.gradients[step].at(name)}, {gradient}))
          << "gradient of " << name << ", step " << step;
    }
    for (const auto& [name, weight] : reference.weights[step]) {
      EXPECT_TRUE(bitwise_equal({engine.weights[step].at(name)}, {weight})) << name << ", step " << step;
    }
    if (testing::Test::HasFailure()) return;
  }
}

std::string error_of_case(const Case& c) {
  return error_of([&] { run_engine(c); });
}

TEST(Asynchronous, PipedreamEqualsTheSameDelayedUpdatesDoneSerially) {
  for (const int lanes : {1, 2, 3, 4}) {
    for (const bool vertical_sync : {false, true}) {
      for (const bool recompute : {false, true}) {
        Case c{"pipedream", lanes};
        c.vertical_sync = vertical_sync;
        c.recompute = recompute;
        c.options.optimizer.kind = Optimizer::Kind::adamw;
        check(c);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Asynchronous, DoubleBufferedUpdatesEqualTheSameDoneSerially) {
  for (const int lanes : {1, 2, 3, 4}) {
    for (const int micro_batches : {4, 5, 8}) {
      Case c{"pipedream-2bw", lanes, micro_batches};
      c.options.optimizer = {.kind = Optimizer::Kind::sgd, .learning_rate = 0.05, .momentum = 0.9};
      check(c);
      if (HasFailure()) return;
    }
  }
}

TEST(Asynchronous, DataTimesPipelineWithClippingByStage) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    for (const int data : {2, 3}) {
      for (const WeightPlacement placement : {WeightPlacement::shared, WeightPlacement::replicated}) {
        Case c{schedule, 2, schedule == std::string("pipedream") ? 1 : 3, data};
        c.options.weights = placement;
        c.options.bucket_bytes = 64;
        c.options.dtype = at::kDouble;
        c.options.clip_norm = 0.05;
        c.options.clip_by_stage = true;
        check(c);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Asynchronous, RunningStatisticsAndTiesWithinAStage) {
  for (const int data : {1, 2}) {
    Case c{"pipedream", 2, 1, data};
    const auto square = [](const char* name) { return layer<torch::nn::LinearImpl>(name, kWidth, kWidth); };
    c.layers = {layer<torch::nn::LinearImpl>("in", kFeatures, kWidth),
                layer<torch::nn::BatchNorm1dImpl>("norm", torch::nn::BatchNorm1dOptions(kWidth)),
                square("a"),
                square("b").tie("weight", "a", "weight"),
                square("c"),
                layer<torch::nn::BatchNorm1dImpl>("last", torch::nn::BatchNorm1dOptions(kWidth)),
                square("d").tie("weight", "c", "weight"),
                layer<torch::nn::LinearImpl>("out", kWidth, 1)};
    c.batch = 8;
    c.options.batch_norm_group = 4;
    check(c);
  }
}

struct InstancesImpl : torch::nn::Module {
  torch::nn::InstanceNorm1d norm{register_module(
      "norm", torch::nn::InstanceNorm1d(torch::nn::InstanceNorm1dOptions(1).track_running_stats(true)))};
  at::Tensor forward(const at::Tensor& x) { return norm(x.unsqueeze(1)).squeeze(1); }
};

// They follow whole pieces, so a step must be one; a window may have many steps.
TEST(Asynchronous, RunningStatisticsOfInstancesInStepsOfOnePiece) {
  Case c{"pipedream", 2};
  c.layers = {layer<torch::nn::LinearImpl>("in", kFeatures, kWidth), layer<torch::nn::TanhImpl>("tanh"),
              layer<InstancesImpl>("instances"), layer<torch::nn::LinearImpl>("out", kWidth, 1)};
  check(c);
  c.schedule = "pipedream-2bw";
  c.micro_batches = 4;
  const std::string error = error_of_case(c);
  EXPECT_NE(error.find("would follow each of the 4 pieces of a batch"), std::string::npos) << error;
}

TEST(Asynchronous, ASchedulesOwnVersionsAreKept) {
  // Stage 0 updates late: it runs three forwards before its first update, two of them with the same weights.
  Case c{"a user's own", 2};
  c.windows = {4};
  c.own = [](int steps) {
    std::string text = fmt::format("# micro_batches={} versions=9,9\n", steps);
    const auto line = [&](int stage, int ahead) {
      int forwards = 0;
      for (int t = 0; t < steps; ++t) {
        while (forwards < std::min(steps, t + ahead)) text += fmt::format("{}F{} ", stage, forwards++);
        text += fmt::format("{}B{} {}O ", stage, t, stage);
      }
      text += "\n";
    };
    line(0, 3);
    line(1, 1);
    return parse_schedule(text, "own");
  };
  c.lag = [](int64_t stage, int64_t t) { return stage == 0 ? std::min<int64_t>(t, 2) : 0; };
  check(c);
}

TEST(Asynchronous, RefusesWhatHasNoMeaning) {
  Case clipped{"pipedream", 2};
  clipped.options.clip_norm = 1;
  EXPECT_NE(error_of_case(clipped).find("clip_by = \"stage\""), std::string::npos) << error_of_case(clipped);

  Case tied{"pipedream", 2};
  tied.layers = {layer<torch::nn::LinearImpl>("in", kFeatures, kFeatures),
                 layer<torch::nn::LinearImpl>("again", kFeatures, kFeatures).tie("weight", "in", "weight")};
  EXPECT_NE(error_of_case(tied).find("\"again.weight\" of stage 1 is tied to \"in.weight\" of stage 0"),
            std::string::npos)
      << error_of_case(tied);
}

TEST(Asynchronous, ALossThatIsNotFiniteEndsAllLanesWithOneMessage) {
  for (const int lanes : {2, 4}) {
    for (const int data : {1, 2}) {
      Case c{"pipedream", lanes, 1, data};
      c.windows = {8};
      c.options.optimizer = {.kind = Optimizer::Kind::sgd, .learning_rate = 1e30};
      const std::string error = error_of_case(c);
      EXPECT_NE(error.find("the loss is not finite"), std::string::npos) << error;
      EXPECT_NE(error.find("Updates of earlier steps stand"), std::string::npos) << error;
    }
  }
}

struct SpoilImpl : torch::nn::Module {
  explicit SpoilImpl(int call) : left(call) {}
  at::Tensor forward(const at::Tensor& in) { return left-- == 0 ? in / 0 : in; }
  int left;
};

TEST(Asynchronous, ABadLossIsNamedByItsStepAndItsPlaceInIt) {
  Case c{"pipedream-2bw", 2, 4};
  c.layers = {layer<torch::nn::LinearImpl>("in", kFeatures, kWidth), layer<torch::nn::TanhImpl>("tanh"),
              layer<SpoilImpl>("spoil", 4 + 2), layer<torch::nn::LinearImpl>("out", kWidth, 1)};
  const std::string error = error_of_case(c);
  EXPECT_NE(error.find("step 2: the loss is not finite (rank 0, micro-batch 2)"), std::string::npos) << error;
}

TEST(WeightVersions, AreTheUpdatesBeforeTheForward) {
  const Schedule schedule = make_schedule("pipedream", {.lanes = 3, .micro_batches = 5});
  EXPECT_EQ(versions_of_forwards(schedule, 0), (std::vector<int>{0, 0, 0, 1, 2}));
  EXPECT_EQ(versions_of_forwards(schedule, 1), (std::vector<int>{0, 0, 1, 2, 3}));
  EXPECT_EQ(versions_of_forwards(schedule, 2), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(versions_of_forwards(schedule, 2, true), (std::vector<int>{0, 0, 0, 1, 2}));
  EXPECT_EQ(versions_to_keep(schedule, 0, versions_of_forwards(schedule, 0)), 3);
  EXPECT_EQ(versions_to_keep(schedule, 1, versions_of_forwards(schedule, 1)), 2);
  EXPECT_EQ(versions_to_keep(schedule, 2, versions_of_forwards(schedule, 2)), 1);
  EXPECT_EQ(versions_to_keep(schedule, 2, versions_of_forwards(schedule, 2, true)), 3);
}

}  // namespace
}  // namespace troika::test

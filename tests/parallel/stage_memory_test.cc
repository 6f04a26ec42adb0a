// What a lane holds in a step is what its schedule says: micro-batches that are held at once, times the bytes
// that one of them saves. Neither the lane's stages nor the messages between them keep anything longer.
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "troika/comm/rank_group.h"
#include "troika/parallel/layer_profile.h"
#include "troika/parallel/memory_meter.h"
#include "troika/parallel/replica.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/liveness.h"
#include "troika/schedule/partition.h"

namespace troika {
namespace {

constexpr int64_t kWidth = 16, kSamples = 256;  // of a micro-batch
constexpr int kBlocks = 60;                     // of each lane: a pass works on few of them at once
constexpr int kMicroBatches = 6;

/// Saves as much for its backward (two activations) as for the weight part alone (input and gradient of the
/// product), because a schedule counts both as one.
struct BlockImpl : torch::nn::Module {
  BlockImpl() { linear = register_module("linear", torch::nn::Linear(kWidth, kWidth)); }
  at::Tensor forward(const at::Tensor& in) { return linear->forward(in).tanh().sigmoid(); }
  torch::nn::Linear linear{nullptr};
};

std::vector<Layer> blocks(int count) {
  std::vector<Layer> layers;
  for (int i = 0; i < count; ++i) layers.push_back(layer<BlockImpl>(fmt::format("block{}", i)));
  return layers;
}

Batch micro_batch() { return {{at::full({kSamples, kWidth}, 0.5)}, {}, kSamples}; }

const Loss kSum = [](const Tensors& out, const Batch& batch) {
  return LossValue{out[0].sum(), static_cast<double>(batch.samples)};
};

struct Case {
  std::string schedule;
  int lanes = 2;
};

class StageMemory : public testing::TestWithParam<Case> {};

TEST_P(StageMemory, IsWhatTheScheduleHolds) {
  const auto [name, lanes] = GetParam();
  at::set_num_threads(1);
  const std::vector<Layer> layers = blocks(kBlocks * lanes);
  ReplicaOptions options;
  options.optimizer.kind = Optimizer::Kind::adamw;
  options.mesh = Mesh{1, lanes, 1};
  PipelineOptions& pipeline = options.pipeline.emplace();
  pipeline.schedule = make_schedule(name, {.lanes = lanes, .micro_batches = kMicroBatches});
  const int stages = pipeline.schedule.num_stages();
  for (int s = 0; s < stages; ++s) pipeline.starts.push_back(s * kBlocks * lanes / stages);
  const std::vector<LanePeaks> peaks = lane_peaks(pipeline.schedule);

  const Batch alone = micro_batch();
  const std::vector<LayerProfile> profile = profile_layers(layers, options, alone, kSum, {.rounds = 2});
  const std::vector<Batch> pieces(kMicroBatches, micro_batch());
  std::vector<MemoryMeter> meters(static_cast<size_t>(lanes));
  run_thread_ranks(lanes, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    const int lane = communicator.rank();
    MemoryMeter& meter = meters[static_cast<size_t>(lane)];
    ReplicaOptions mine = options;
    mine.meter_of = [&meter](int) { return &meter; };
    double saved = 0, weights = 0;
    for (int stage = 0; stage < stages; ++stage) {
      if (pipeline.schedule.lane_of(stage) != lane) continue;
      const Range of_stage = layers_of_stage(pipeline.starts, static_cast<size_t>(stage), layers.size());
      for (int64_t i = of_stage.begin; i < of_stage.end; ++i) {
        saved += static_cast<double>(profile[static_cast<size_t>(i)].held_bytes);
        weights += static_cast<double>(profile[static_cast<size_t>(i)].parameter_bytes);
      }
    }
    Replica replica(communicator, layers, mine);
    EXPECT_EQ(static_cast<double>(meter.current_bytes()), 3 * weights) << "weights and two moments";
    for (int step = 0; step < 2; ++step) {
      meter.restart_peak();
      const auto before = static_cast<double>(meter.current_bytes());
      replica.step(pieces, kSum);
      const double held = (static_cast<double>(meter.peak_bytes()) - before - weights) / saved;
      const double expected = peaks[static_cast<size_t>(lane)].held;
      EXPECT_NEAR(held, expected, 0.05 * expected) << "lane " << lane << ", step " << step;
      communicator.barrier();  // what this lane has made may be held by another one
      EXPECT_NEAR(static_cast<double>(meter.current_bytes()), before, 0.02 * saved) << "nothing is left";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(OfEverySchedule, StageMemory,
                         testing::Values(Case{"gpipe", 2}, Case{"gpipe", 4}, Case{"1f1b", 2}, Case{"1f1b", 4},
                                         Case{"zb-h1", 2}, Case{"zb-h1", 4}, Case{"v-half", 2},
                                         Case{"v-half", 4}),
                         [](const auto& info) {
                           std::string name = fmt::format("{}_{}", info.param.schedule, info.param.lanes);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace troika

// More thread ranks cost gradients and activations only: weights and optimizer state are there once.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troika/base/memory.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/replica.h"

namespace troika {
namespace {

constexpr int64_t kWidth = 3072;  // one layer: 36 MiB, above malloc's largest pool
constexpr double kModelBytes =
    3.0 * 4 * kWidth * kWidth;  // weights; as much momentum, and a gradient per rank
constexpr double kLayerBytes = kModelBytes / 3;

// What the process has after two steps, above what it had before.
double bytes_with(int ranks) {
  const std::vector<Layer> layers{layer<torch::nn::LinearImpl>("a", kWidth, kWidth),
                                  layer<torch::nn::LinearImpl>("b", kWidth, kWidth),
                                  layer<torch::nn::LinearImpl>("c", kWidth, kWidth)};
  ReplicaOptions options;
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.optimizer.momentum = 0.9;
  const Loss loss = [](const Tensors& out, const Batch& batch) {
    return LossValue{out[0].square().sum(), static_cast<double>(batch.samples)};
  };
  const auto before = static_cast<double>(rss_bytes());
  double after = 0;
  run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    Replica replica(communicator, layers, options);
    const Batch batch{{torch::full({2, kWidth}, 0.01)}, {}, 2};
    for (int step = 0; step < 2; ++step) replica.step({&batch, 1}, loss);
    communicator.barrier();
    if (communicator.rank() == 0) after = static_cast<double>(rss_bytes());
    communicator.barrier();
  });
  return after - before;
}

TEST(Memory, MoreRanksCostGradientsOnly) {
  bytes_with(1);  // what torch and malloc keep once they have it
  const double one = bytes_with(1);
  const double three = bytes_with(3);
  EXPECT_GT(one, 1.9 * kModelBytes) << "weights and momentum are really there";
  // Between steps gradients are gone, but malloc may keep them. Two copies of weights and momentum would be
  // four models more.
  EXPECT_LT(three - one, 2 * kModelBytes + kLayerBytes);
  // In a step: weights, momentum, and a gradient per rank; while building a rank has one layer twice.
  EXPECT_LT(static_cast<double>(peak_rss_bytes()), 5 * kModelBytes + 3 * kLayerBytes + 300e6);
}

}  // namespace
}  // namespace troika

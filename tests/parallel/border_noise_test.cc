// Noise in a stage whose inputs are not batch first: the masks are those of the serial run, or it is refused.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "support/error_of.h"
#include "support/small_models.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"
#include "troika/schedule/catalogue.h"

namespace troika::test {
namespace {

constexpr int64_t kTime = 4, kWidth = 3;
constexpr int kMicroBatches = 3;

/// What stands at the border between the stages.
enum class Border {
  batch_first,  // [samples, time, width]
  time_first,   // [time, samples, width]
  merged,       // [samples x time, width]
};

at::Tensor to_border(const at::Tensor& x, Border border) {
  if (border == Border::time_first) return x.transpose(0, 1).contiguous();
  return border == Border::merged ? x.flatten(0, 1) : x;
}
at::Tensor from_border(const at::Tensor& x, Border border) {
  if (border == Border::time_first) return x.transpose(0, 1);
  return border == Border::merged ? x.view({-1, kTime, kWidth}) : x;
}

struct OpenImpl : torch::nn::Module {
  explicit OpenImpl(Border border) : border(border) {}
  Tensors forward(const Tensors& in) {
    const at::Tensor h = linear(in[0]).tanh();
    const at::Tensor mask = at::ones({kTime, kTime}, at::kBool).tril();
    return {to_border(h.view({-1, kTime, kWidth}), border), mask, h};
  }
  Border border;
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(kFeatures, kTime* kWidth))};
};

/// Drops on what came in; the mask has no samples, and is as large as a micro-batch of kTime.
struct DropImpl : torch::nn::Module {
  Tensors forward(const Tensors& in) { return {linear(drop(in[0])).tanh(), in[1]}; }
  torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.5))};
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(kWidth, kWidth))};
};

struct CloseImpl : torch::nn::Module {
  explicit CloseImpl(Border border) : border(border) {}
  Tensors forward(const Tensors& in) {
    const at::Tensor x = from_border(in[0], border).transpose(1, 2);  // [samples, width, time]
    return {out(x.matmul(in[1].to(x.scalar_type())).flatten(1) * in[2])};
  }
  Border border;
  torch::nn::Linear out{register_module("out", torch::nn::Linear(kTime* kWidth, 1))};
};

std::vector<Layer> layers_of(Border border, bool noise) {
  std::vector<Layer> layers{layer<OpenImpl>("open", border).put("batch first")};
  if (noise) layers.push_back(layer<DropImpl>("drop"));
  layers.push_back(layer<CloseImpl>("close", border).get("batch first"));
  return layers;
}

std::vector<at::Tensor> on_pipeline(const std::vector<Layer>& layers, int64_t batch, int data) {
  ReplicaOptions options;
  options.mesh = Mesh{data, 2, 1};
  options.dtype = at::kDouble;
  options.pipeline =
      PipelineOptions{make_schedule("1f1b", {.lanes = 2, .micro_batches = kMicroBatches}), {0, 1}};
  std::vector<std::vector<at::Tensor>> by_lane(2);
  run_thread_ranks(options.mesh.ranks(), {}, [&](Communicator& ranks) {
    at::set_num_threads(1);
    Replica replica(ranks, layers, options);
    const auto place = options.mesh.coordinate(ranks.rank());
    for (int step = 0; step < 2; ++step) {
      const auto pieces = pieces_of(batch, data, kMicroBatches, 1, at::kDouble, batch * step);
      replica.step(pieces[static_cast<size_t>(place.data)], squared_error);
    }
    if (place.data == 0) by_lane[static_cast<size_t>(place.pipeline)] = copies_of(replica.parameters());
  });
  by_lane[0].insert(by_lane[0].end(), by_lane[1].begin(), by_lane[1].end());
  return by_lane[0];
}

std::vector<at::Tensor> on_one_thread(const std::vector<Layer>& layers, int64_t batch, int data) {
  at::set_num_threads(1);
  ReplicaOptions options;
  options.dtype = at::kDouble;
  MicroBatchedReference reference(layers, options, data);
  for (int step = 0; step < 2; ++step) {
    reference.step(pieces_of(batch, data, kMicroBatches, 1, at::kDouble, batch * step), squared_error);
  }
  return copies_of(reference.parameters());
}

TEST(BorderNoise, IsTheSerialOneWhereverTheSamplesAre) {
  for (const Border border : {Border::batch_first, Border::time_first}) {
    const std::vector<Layer> layers = layers_of(border, true);
    // As many samples as time steps, more and fewer, and uneven.
    for (const int64_t batch : {int64_t{3} * kTime, int64_t{6} * kTime, int64_t{3}, int64_t{17}}) {
      for (const int data : {1, 2}) {
        EXPECT_TRUE(bitwise_equal(on_pipeline(layers, batch, data), on_one_thread(layers, batch, data)))
            << static_cast<int>(border) << " " << batch << " " << data;
      }
    }
  }
}

TEST(BorderNoise, WhereItCannotBeToldTheLayerIsNamed) {
  const std::string text = error_of([] { on_pipeline(layers_of(Border::merged, true), 12, 1); });
  EXPECT_NE(
      text.find("layer \"drop\": its dropout number 0 is on a tensor of [16, 3], and which dimension holds "
                "the 4 samples can't be told"),
      std::string::npos)
      << text;
}

TEST(BorderNoise, WithoutNoiseAnyBorderWillDo) {
  const std::vector<Layer> layers = layers_of(Border::merged, false);
  EXPECT_TRUE(bitwise_equal(on_pipeline(layers, 17, 2), on_one_thread(layers, 17, 2)));
}

}  // namespace
}  // namespace troika::test

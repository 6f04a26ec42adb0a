// What goes wrong in a stage ends all ranks, and says which stage, which micro-batch and why.
#include <ATen/Parallel.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "support/error_of.h"
#include "support/small_models.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/stage.h"
#include "troika/schedule/catalogue.h"

namespace troika::test {
namespace {

constexpr int64_t kWidth = 4;

/// Does `spoil` to what passes, in the call that it is told.
struct SpoilImpl : torch::nn::Module {
  SpoilImpl(int call, std::function<at::Tensor(const at::Tensor&)> spoil)
      : left(call), spoil_(std::move(spoil)) {}
  at::Tensor forward(const at::Tensor& in) { return left-- == 0 ? spoil_(in) : in; }
  int left;
  std::function<at::Tensor(const at::Tensor&)> spoil_;
};

std::vector<Layer> layers_with(int call, const std::function<at::Tensor(const at::Tensor&)>& spoil) {
  return {layer<torch::nn::LinearImpl>("in", kFeatures, kWidth),
          layer<torch::nn::LinearImpl>("one", kWidth, kWidth), layer<SpoilImpl>("spoil", call, spoil),
          layer<torch::nn::LinearImpl>("out", kWidth, 1)};
}

std::string error_in_training(const std::vector<Layer>& layers, const std::string& schedule = "1f1b",
                              int data = 1, double clip_norm = 0, const Loss& loss = squared_error) {
  return error_of([&] {
    GroupOptions group;
    group.deadline_seconds = 10;
    run_thread_ranks(2 * data, group, [&](Communicator& communicator) {
      at::set_num_threads(1);
      ReplicaOptions options;
      options.mesh = {data, 2, 1};
      options.clip_norm = clip_norm;
      options.pipeline = PipelineOptions{make_schedule(schedule, {.lanes = 2, .micro_batches = 4}), {0, 2}};
      Replica replica(communicator, layers, options);
      const auto rank = static_cast<size_t>(options.mesh.coordinate(communicator.rank()).data);
      for (int step = 0; step < 3; ++step) replica.step(pieces_of(12, data, 4)[rank], loss);
    });
  });
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(PipelineFailure, AnExceptionNamesStageAndMicroBatch) {
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const std::string text = error_in_training(
        layers_with(2, [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("out of paper"); }),
        schedule);
    EXPECT_TRUE(has(text, "stage 1, forward, micro-batch 2")) << text;
    EXPECT_TRUE(has(text, "out of paper")) << text;
  }
}

TEST(PipelineFailure, AShapeThatTheNextLayerCannotTakeIsNamed) {
  const std::string text =
      error_in_training(layers_with(1, [](const at::Tensor& in) { return in.narrow(1, 0, 2); }));
  EXPECT_TRUE(has(text, "stage 1, forward, micro-batch 1: layer \"out\", forward")) << text;
}

TEST(PipelineFailure, ABadLossNamesWhereItBegan) {
  for (const int data : {1, 2}) {
    const std::string text = error_in_training(
        layers_with(3, [](const at::Tensor& in) { return at::full_like(in, NAN); }), "1f1b", data);
    EXPECT_TRUE(has(text, "step 1: the loss is not finite")) << text;
    EXPECT_TRUE(has(text, "micro-batch 3")) << text;
    EXPECT_TRUE(has(text, "No weight was changed")) << text;
  }
  // In the first stage, whose lane doesn't see the loss.
  std::vector<Layer> early = layers_with(1 << 20, [](const at::Tensor& in) { return in; });
  early[1] = layer<SpoilImpl>("early", 0, [](const at::Tensor& in) { return at::full_like(in, INFINITY); });
  EXPECT_TRUE(has(error_in_training(early), "the loss is not finite")) << error_in_training(early);
}

TEST(PipelineFailure, ABadGradientIsNamedWithClipping) {
  const Loss loss = [](const Tensors& outputs, const Batch& batch) {
    LossValue value = squared_error(outputs, batch);
    value.sum = value.sum * 1e-30;
    value.sum = (value.sum * 1e-30).sqrt();  // finite, with a gradient that isn't
    value.sum = value.sum - value.sum;
    return value;
  };
  const std::string text =
      error_in_training(layers_with(1 << 20, [](const at::Tensor& in) { return in; }), "1f1b", 1, 1, loss);
  EXPECT_TRUE(has(text, "gradient of parameter \"in.weight\"")) << text;
}

TEST(PipelineFailure, WeightsWrittenBetweenForwardAndBackwardAreSeen) {
  const std::vector<Layer> layers = mlp().layers;
  const Wiring wiring = wire(layers, {0});
  Model model(layers, 1);
  int64_t version = 0;
  StageSetting setting;
  setting.weights.version = [&version] { return version; };
  Stage stage({&model}, wiring.stages[0], setting);
  const std::vector<Batch> pieces = {rows({0, 4}), rows({4, 8})};
  const Loss loss = squared_error;
  stage.begin_steps({}, pieces, loss);
  stage.forward(0);
  stage.forward(1);
  stage.backward(0);
  ++version;
  EXPECT_DEATH(stage.backward(1), "written between a forward and its backward");
}

TEST(PipelineFailure, AScheduleOrCutThatDoesNotFitIsRefused) {
  const auto refused = [](Mesh mesh, std::optional<PipelineOptions> pipeline, int ranks) {
    return error_of([&] {
      run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
        ReplicaOptions options;
        options.mesh = mesh;
        options.pipeline = pipeline;
        Replica replica(communicator, mlp().layers, options);
      });
    });
  };
  EXPECT_TRUE(has(refused({1, 2, 1}, {}, 2), "there is no schedule"));
  EXPECT_TRUE(has(refused({1, 2, 2}, {}, 4), "there is no schedule"));
  EXPECT_TRUE(has(refused({1, 3, 1}, {}, 2), "3"));
  const PipelineOptions wrong{make_schedule("gpipe", {.lanes = 2, .micro_batches = 2}), {0}};
  EXPECT_TRUE(has(refused({1, 2, 1}, wrong, 2), "2 lanes and 2 stages doesn't fit"));
  const PipelineOptions delayed{make_schedule("pipedream", {.lanes = 2, .micro_batches = 2}), {0, 1}};
  EXPECT_TRUE(has(refused({1, 2, 1}, delayed, 2), "updates weights within its window"));
}

}  // namespace
}  // namespace troika::test

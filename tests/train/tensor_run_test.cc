// Training on tensor ranks, as a user runs it: the serial run's losses, whatever the mesh, and a checkpoint
// that doesn't know it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "train/support/pipeline_run.h"

namespace troika {
namespace {

// Sums over slices in float32, which seven steps of AdamW carry on.
constexpr double kDrift = 2e-4;

class TensorRun : public PipelineRun {
 protected:
  void expect_close_weights(const std::string& name, const std::string& expected) const {
    const auto ours = read_checkpoint(folder_ / name / "model.safetensors").tensors;
    const auto theirs = read_checkpoint(folder_ / expected / "model.safetensors").tensors;
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(ours[i].name, theirs[i].name);
      ASSERT_EQ(ours[i].tensor.sizes(), theirs[i].tensor.sizes()) << ours[i].name;
      const double largest = theirs[i].tensor.abs().max().item<double>();
      EXPECT_LE((ours[i].tensor - theirs[i].tensor).abs().max().item<double>(),
                kDrift * std::max(largest, 1.0))
          << name << ": " << ours[i].name;
    }
  }
};

TEST_F(TensorRun, EveryMeshEndsWhereOneRankDoes) {
  recipe_.train.clip_norm = 0.5;
  const TrainReport one = run(on(1, 1), "one");
  for (const Mesh& mesh : {Mesh{1, 1, 2}, Mesh{2, 1, 2}, Mesh{1, 2, 2}, Mesh{2, 2, 2}, Mesh{1, 1, 3}}) {
    const std::string name = to_string(mesh);
    const TrainReport report = run(on(mesh), name);
    EXPECT_NEAR(report.train_loss, one.train_loss, 1e-5 * one.train_loss) << name;
    ASSERT_TRUE(report.validation_loss && report.test);
    EXPECT_NEAR(*report.validation_loss, *one.validation_loss, 1e-4 * *one.validation_loss) << name;
    expect_close_weights(name, "one");
    int64_t parameters = 0, expected = 0;
    for (const StageReport& stage : report.stages) parameters += stage.parameters;
    for (const StageReport& stage : one.stages) expected += stage.parameters;
    EXPECT_EQ(parameters, expected) << name;
  }
}

TEST_F(TensorRun, EveryModelEndsWhereOneRankDoes) {
  recipe_.data.time = "when";
  recipe_.data.window = 6;
  recipe_.data.split.by = "time";
  recipe_.model.layers = 2;
  recipe_.train.batch = 60;
  // A key's bias has no gradient but rounding, which Adam would make into steps.
  recipe_.train.optimizer = "sgd";
  for (const std::string type : {"lstm", "gru", "tcn", "transformer", "cnn"}) {
    recipe_.model.type = type;
    recipe_.model.heads = type == "transformer" ? 3 : 0;
    recipe_.model.width = type == "transformer" ? 15 : 16;
    recipe_.train.batch_norm_group = type == "cnn" ? 8 : 0;
    run(on(1, 1), type + "-one");
    run(on(Mesh{1, 1, 2}), type + "-two");
    expect_close_weights(type + "-two", type + "-one");
    run(on(Mesh{2, 2, 2}), type + "-eight");
    expect_close_weights(type + "-eight", type + "-one");
    if (HasFailure()) return;
  }
}

TEST_F(TensorRun, ACheckpointDoesNotKnowTheMesh) {
  run(on(1, 1), "unbroken");
  for (const Mesh& then : {Mesh{4, 1, 1}, Mesh{1, 1, 1}, Mesh{1, 1, 3}}) {
    TrainOptions broken;
    broken.on_step = [](int64_t step, double) { return step < 4; };
    const std::string name = "to " + to_string(then);
    EXPECT_FALSE(run(on(Mesh{1, 2, 2}), name, broken).finished);
    TrainOptions resumed;
    resumed.resume = true;
    EXPECT_TRUE(run(on(then), name, resumed).finished);
    expect_close_weights(name, "unbroken");
  }
}

TEST_F(TensorRun, AnAsynchronousScheduleAndRecomputeRunOnSlicesToo) {
  recipe_.parallel.micro_batches = 1;
  run(on(1, 2, "pipedream"), "two");
  run(on(Mesh{1, 2, 2}, "pipedream"), "four");
  expect_close_weights("four", "two");
  recipe_.parallel.micro_batches = 4;
  run(on(1, 1), "one");
  recipe_.parallel.recompute_layers = {"*"};
  run(on(Mesh{1, 2, 2}), "again");
  expect_close_weights("again", "one");
}

TEST_F(TensorRun, WrongSplitsAreNamed) {
  Recipe recipe = on(Mesh{1, 1, 2});
  recipe.parallel.splits = {{"hiden1", "rows"}};
  EXPECT_SAYS(error_of([&] { run(recipe, "no"); }), "did you mean \"hidden1\"");
}

}  // namespace
}  // namespace troika

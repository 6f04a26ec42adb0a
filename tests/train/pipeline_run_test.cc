// Training with a pipeline, as a user runs it: the same numbers as one rank that computes the same pieces,
// whatever the schedule, and resumed on another mesh too.
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "train/support/pipeline_run.h"

namespace troika {
namespace {

TEST_F(PipelineRun, EverySchedulesResultIsThatOfOneRank) {
  const TrainReport one = run(on(1, 1), "one");
  for (const std::string schedule : {"", "gpipe", "zb-h1", "interleaved-1f1b", "zb-v", "dualpipe-v"}) {
    const std::string name = "two" + schedule;
    const TrainReport two = run(on(1, 2, schedule), name);
    EXPECT_EQ(two.train_loss, one.train_loss) << schedule;
    ASSERT_TRUE(two.validation_loss && one.validation_loss);
    EXPECT_NEAR(*two.validation_loss, *one.validation_loss, 1e-6 * *one.validation_loss) << schedule;
    expect_same_weights(name, "one");
    EXPECT_EQ(two.stages.size(),
              schedule == "interleaved-1f1b" || schedule == "zb-v" || schedule == "dualpipe-v" ? 4u : 2u);
    ASSERT_TRUE(two.predicted_bubble_rate && two.measured_bubble_rate) << schedule;
    EXPECT_GT(*two.predicted_bubble_rate, 0);
    EXPECT_LT(*two.measured_bubble_rate, 1);
    EXPECT_FALSE(two.lanes.spans.empty());
    EXPECT_FALSE(two.simulated.spans.empty());
  }
}

TEST_F(PipelineRun, EveryModelsResultIsThatOfOneRank) {
  recipe_.data.time = "when";
  recipe_.data.window = 6;
  recipe_.data.split.by = "time";
  recipe_.model.layers = 3;
  recipe_.train.batch = 60;  // uneven over micro-batches
  for (const std::string type : {"lstm", "gru", "tcn", "transformer", "cnn"}) {
    recipe_.model.type = type;
    recipe_.model.heads = type == "transformer" ? 2 : 0;
    recipe_.train.batch_norm_group = type == "cnn" ? 8 : 0;
    run(on(1, 1), type + "-one");
    for (const std::string schedule : {"1f1b", "zb-h1"}) {
      run(on(1, 2, schedule), type + schedule);
      expect_same_weights(type + schedule, type + "-one");
      if (HasFailure()) return;
    }
  }
}

TEST_F(PipelineRun, DataTimesPipelineEqualsDataAlone) {
  recipe_.train.clip_norm = 0.1;
  run(on(2, 1), "data");
  run(on(2, 2, "zb-h1"), "both");
  expect_same_weights("both", "data");
}

TEST_F(PipelineRun, ACheckpointDoesNotKnowTheMesh) {
  run(on(1, 1), "unbroken");
  TrainOptions broken;
  broken.on_step = [](int64_t step, double) { return step < 4; };
  EXPECT_FALSE(run(on(1, 2), "run", broken).finished);
  TrainOptions resumed;
  resumed.resume = true;
  EXPECT_TRUE(run(on(1, 3, "gpipe"), "run", resumed).finished);
  expect_same_weights("run", "unbroken");
}

TEST_F(PipelineRun, RecomputeChangesNothing) {
  run(on(1, 1), "plain");
  for (const std::string recompute : {"always", "except_last"}) {
    recipe_.parallel.recompute = recompute;
    run(on(1, 2), recompute);
    expect_same_weights(recompute, "plain");
  }
  recipe_.parallel.recompute = "always";
  run(on(1, 1), "one");
  expect_same_weights("one", "plain");
  recipe_.parallel.recompute = "never";
  recipe_.parallel.recompute_layers = {"hidden*", "head"};
  run(on(1, 1), "one-layers");
  expect_same_weights("one-layers", "plain");
  run(on(1, 2, "zb-h1"), "two-layers");
  expect_same_weights("two-layers", "plain");
}

TEST_F(PipelineRun, WhatDoesNotFitIsSaidBeforeAnythingIsWritten) {
  const auto message = [&](const Recipe& recipe) {
    const std::string text = error_of([&] { run(recipe, "refused"); });
    EXPECT_FALSE(std::filesystem::exists(folder_ / "refused"));
    return text;
  };
  Recipe recipe = on(1, 9);
  EXPECT_NE(message(recipe).find("can't fill 9 stages"), std::string::npos) << message(recipe);
  recipe = on(2, 1, "gpipe");
  EXPECT_NE(message(recipe).find("parallel.schedule means nothing without a pipeline"), std::string::npos);
  recipe = on(1, 2, "gpip");
  EXPECT_NE(message(recipe).find("gpipe"), std::string::npos) << message(recipe);
  recipe = on(1, 2);
  recipe.parallel.cuts = {"nothing"};
  EXPECT_NE(message(recipe).find("nothing"), std::string::npos) << message(recipe);
  recipe.parallel.cuts = {"hidden1", "hidden2"};
  EXPECT_FALSE(message(recipe).empty());
  recipe.parallel.cuts.clear();
  recipe.parallel.recompute_layers = {"hidden*", "haed"};
  EXPECT_NE(message(recipe).find("parallel.recompute: no layer is called \"haed\" (did you mean \"head\"?)"),
            std::string::npos)
      << message(recipe);
}

}  // namespace
}  // namespace troika

// Training with asynchronous schedules, and with schedules from a file, as a user runs it.
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "train/support/pipeline_run.h"
#include "troika/base/file.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/schedule_text.h"
#include "troika/schedule/torch_csv.h"

namespace troika {
namespace {

class AsynchronousRun : public PipelineRun {
 protected:
  AsynchronousRun() {
    recipe_.train.steps = 20;
    recipe_.train.checkpoint_every = 8;
    recipe_.parallel.micro_batches = 1;
  }

  std::string message(const Recipe& recipe) const {
    const std::string text = error_of([&] { run(recipe, "refused"); });
    EXPECT_FALSE(std::filesystem::exists(folder_ / "refused"));
    return text;
  }
};

TEST_F(AsynchronousRun, LearnsAndReportsItsWindow) {
  std::vector<int64_t> steps;
  TrainOptions options;
  options.on_step = [&](int64_t step, double loss) {
    EXPECT_TRUE(std::isfinite(loss));
    steps.push_back(step);
    return true;
  };
  const TrainReport report = run(on(1, 3, "pipedream"), "run", options);
  EXPECT_TRUE(report.finished);
  EXPECT_EQ(steps.size(), 20u);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  EXPECT_EQ(report.schedule, "pipedream");
  ASSERT_TRUE(report.measured_bubble_rate && report.predicted_bubble_rate);
  EXPECT_FALSE(report.lanes.spans.empty());
  EXPECT_EQ(report.simulated.spans.empty(), false);
}

// The lag makes the first updates differ from synchronous ones.
TEST_F(AsynchronousRun, IsNotSynchronousTrainingButOneStepWindowsAre) {
  run(on(1, 1), "one");
  Recipe flushed = on(1, 2, "pipedream");
  flushed.parallel.flush_every = 1;
  run(flushed, "flushed");
  expect_same_weights("flushed", "one");
  const TrainReport delayed = run(on(1, 2, "pipedream"), "delayed");
  const TrainReport one = run(on(1, 1), "again");
  EXPECT_NE(delayed.train_loss, one.train_loss);
}

TEST_F(AsynchronousRun, AResumedRunDrainsWhereAnUnbrokenOneDoes) {
  for (const std::string schedule : {"pipedream", "pipedream-2bw"}) {
    recipe_.parallel.micro_batches = schedule == "pipedream" ? 1 : 3;
    for (const int64_t flush_every : {0, 5}) {
      recipe_.parallel.flush_every = flush_every;
      const std::string name = schedule + std::to_string(flush_every);
      run(on(1, 2, schedule), name + "-unbroken");
      TrainOptions broken;
      broken.on_step = [](int64_t step, double) { return step < 7; };  // the window goes on to its end
      EXPECT_FALSE(run(on(1, 2, schedule), name, broken).finished);
      TrainOptions resumed;
      resumed.resume = true;
      EXPECT_TRUE(run(on(1, 2, schedule), name, resumed).finished);
      expect_same_weights(name, name + "-unbroken");
      if (HasFailure()) return;
    }
  }
}

// What a run gives must not depend on a measurement.
TEST_F(AsynchronousRun, IsCutByParametersUnlessAskedOtherwise) {
  const TrainReport late = run(on(1, 2, "pipedream"), "late");
  Recipe recipe = on(1, 2, "1f1b");
  recipe.parallel.cut_by = "parameters";
  const TrainReport balanced = run(recipe, "balanced");
  ASSERT_EQ(late.stages.size(), balanced.stages.size());
  for (size_t s = 0; s < late.stages.size(); ++s) EXPECT_EQ(late.stages[s].layers, balanced.stages[s].layers);
  recipe = on(1, 2, "pipedream");
  recipe.parallel.cut_by = "time";
  EXPECT_TRUE(run(recipe, "timed").finished);
}

TEST_F(AsynchronousRun, DataRanksShareTheVersions) {
  recipe_.parallel.vertical_sync = true;
  run(on(1, 2, "pipedream"), "lanes");
  const TrainReport both = run(on(2, 2, "pipedream"), "both");
  EXPECT_TRUE(both.finished);
  recipe_.parallel.weights = "replicated";
  run(on(2, 2, "pipedream"), "replicated");
  expect_same_weights("replicated", "both");
}

TEST_F(AsynchronousRun, RefusesKeysWithoutMeaning) {
  Recipe recipe = on(1, 2, "pipedream");
  recipe.parallel.micro_batches = 4;
  EXPECT_NE(message(recipe).find("take pipedream-2bw"), std::string::npos) << message(recipe);
  recipe = on(1, 2, "1f1b");
  recipe.parallel.flush_every = 4;
  EXPECT_NE(message(recipe).find("flush_every is for asynchronous schedules"), std::string::npos);
  recipe = on(1, 2, "pipedream");
  recipe.train.clip_norm = 1;
  EXPECT_NE(message(recipe).find("clip_by = \"stage\""), std::string::npos) << message(recipe);
  recipe.train.clip_by = "stage";
  EXPECT_TRUE(run(recipe, "clipped").finished);
  recipe = on(1, 2, "1f1b");
  recipe.train.clip_norm = 1;
  recipe.train.clip_by = "stage";
  EXPECT_NE(message(recipe).find("is for asynchronous schedules"), std::string::npos) << message(recipe);
}

TEST_F(AsynchronousRun, AUsersOwnScheduleComesFromAFile) {
  recipe_.train.steps = 5;
  recipe_.parallel.micro_batches = 4;
  run(on(1, 1), "one");
  const Schedule made = make_schedule("zb-h1", {.lanes = 2, .micro_batches = 4});
  write_whole(folder_ / "mine.txt", to_text(made));
  write_whole(folder_ / "mine.csv", to_torch_csv(make_schedule("1f1b", {.lanes = 2, .micro_batches = 4})));
  for (const char* file : {"mine.txt", "mine.csv"}) {
    const std::string name = std::string("run of ") + file;
    run(on(1, 2, folder_ / file), name);
    expect_same_weights(name, "one");
  }
  // One with updates of its own.
  recipe_.parallel.micro_batches = 1;
  write_whole(folder_ / "late.txt", to_text(make_schedule("pipedream", {.lanes = 2, .micro_batches = 4})));
  run(on(1, 2, folder_ / "late.txt"), "late");
  Recipe same = on(1, 2, "pipedream");
  same.parallel.flush_every = 4;
  same.train.checkpoint_every = recipe_.train.checkpoint_every = 4;
  run(same, "same");
  expect_same_weights("late", "same");
}

TEST_F(AsynchronousRun, AFileThatDoesNotFitIsNamed) {
  recipe_.parallel.micro_batches = 4;
  const std::string file = folder_ / "mine.txt";
  EXPECT_NE(message(on(1, 2, file)).find("there is no file"), std::string::npos) << message(on(1, 2, file));
  write_whole(file, to_text(make_schedule("1f1b", {.lanes = 3, .micro_batches = 4})));
  EXPECT_NE(message(on(1, 2, file)).find("has 3 lanes"), std::string::npos) << message(on(1, 2, file));
  write_whole(file, to_text(make_schedule("1f1b", {.lanes = 2, .micro_batches = 8})));
  EXPECT_NE(message(on(1, 2, file)).find("--micro-batches 8"), std::string::npos) << message(on(1, 2, file));
  write_whole(file, std::string("0F0 0B0\n1F0\n"));
  EXPECT_NE(message(on(1, 2, file)).find("mine.txt"), std::string::npos) << message(on(1, 2, file));
}

}  // namespace
}  // namespace troika

// What a run says of its stages before it begins, and what it measures: cuts, seconds, bytes.
#include "troika/train/stage_plan.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "train/support/pipeline_run.h"
#include "troika/comm/rank_group.h"
#include "troika/train/stage_meters.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

class StagePlanTest : public MeshRun {
 protected:
  StagePlanTest() : MeshRun(1200) {
    recipe_.model.layers = 6;
    recipe_.model.width = 64;
    recipe_.train.batch = 512;
    recipe_.train.steps = 4;
  }

  RunPlan plan_of(const Recipe& recipe) const {
    Workload work = prepare(recipe);
    if (!work.profile) {
      work.profile = profile_model(work, work.pipeline && has_parts(work.pipeline->options.schedule));
    }
    return plan_stages(work);
  }
};

TEST_F(StagePlanTest, MemoryIsMeasuredAndWasPredicted) {
  recipe_.model.layers = 16;  // of each stage so many that a pass works on few at once
  for (const std::string weights : {"shared", "replicated"}) {
    recipe_.parallel.weights = weights;
    for (const auto& [data, lanes, schedule] : {std::tuple{1, 1, ""},
                                                {2, 1, ""},
                                                {1, 2, "gpipe"},
                                                {1, 3, "1f1b"},
                                                {1, 2, "zb-h1"},
                                                {2, 2, "zb-v"}}) {
      const Recipe recipe = on(data, lanes, schedule);
      const TrainReport report = run(recipe, fmt::format("{}{}{}{}", weights, data, lanes, schedule));
      EXPECT_EQ(report.stages.size(), std::string(schedule) == "zb-v" ? 4u : static_cast<size_t>(lanes));
      for (size_t s = 0; s < report.stages.size(); ++s) {
        const StageReport& stage = report.stages[s];
        ASSERT_TRUE(stage.peak_bytes);
        ASSERT_EQ(stage.predicted_peak_bytes.has_value(), lanes > 1)
            << "layers are profiled where they are cut";
        const int64_t predicted =
            stage.predicted_peak_bytes ? *stage.predicted_peak_bytes : plan_of(recipe).stages[s].peak_bytes;
        const auto measured = static_cast<double>(*stage.peak_bytes);
        EXPECT_GT(measured, 16.0 * static_cast<double>(stage.parameters))
            << "adamw: three copies and a gradient";
        EXPECT_NEAR(static_cast<double>(predicted) / measured, 1, 0.15)
            << weights << " data " << data << ", " << schedule << ", stage " << s << ": " << measured;
      }
    }
  }
}

TEST_F(StagePlanTest, OnlyStepsCountAndTheMostOfAnyRank) {
  const Workload work = prepare(on(2, 2));
  run_thread_ranks(4, {}, [&](Communicator& communicator) {
    const int rank = communicator.rank(), lane = work.mesh().coordinate(rank).pipeline;
    internal::StageMeters meters(work, rank);
    const MeterScope scope(meters.options(work).meter_of(lane));
    const auto hold = [](int64_t bytes) { at::empty({bytes}, at::kByte); };
    hold(1000);
    meters.begin_step();
    hold(100 + rank);
    meters.end_step();
    hold(2000);
    meters.begin_step();
    hold(50);
    meters.end_step();
    EXPECT_EQ(meters.gathered(communicator), (std::vector<int64_t>{102, 103}));
  });
}

TEST_F(StagePlanTest, TheRanksInputsCount) {
  recipe_.model.layers = 1;
  recipe_.model.width = 2;
  recipe_.train.batch = 900;
  const StageReport stage = run(on(1, 1), "run").stages.at(0);
  const int64_t predicted = plan_of(on(1, 1)).stages.at(0).peak_bytes;
  const int64_t inputs = 900 * (2 * 4 + 8 + 4);  // two numbers, a category, the target
  EXPECT_GT(*stage.peak_bytes, inputs);
  EXPECT_LT(*stage.peak_bytes, 2 * inputs);
  EXPECT_NEAR(static_cast<double>(predicted) / static_cast<double>(*stage.peak_bytes), 1, 0.2);
}

TEST_F(StagePlanTest, CutsAreWrittenByNameAndKept) {
  const TrainReport first = run(on(1, 2), "run");
  const Recipe written = parse_recipe(folder_ / "run" / "recipe.toml");
  ASSERT_EQ(written.parallel.cuts.size(), 1u);
  EXPECT_EQ(written.parallel.cuts[0], first.stages[1].layers[0]);
  // Whatever the times are the next time.
  Recipe other = written;
  other.parallel.cuts = {first.stages[1].layers.size() > 1 ? first.stages[1].layers[1]
                                                           : first.stages[0].layers[1]};
  TrainOptions broken;
  broken.on_step = [](int64_t step, double) { return step < 2; };
  EXPECT_FALSE(run(other, "other", broken).finished);
  TrainOptions resumed;
  resumed.resume = true;
  const TrainReport report = run(on(1, 2), "other", resumed);
  EXPECT_EQ(report.stages[1].layers[0], other.parallel.cuts[0]);
  EXPECT_TRUE(run(on(1, 3), "other", resumed).finished) << "other stages are cut anew";
}

TEST_F(StagePlanTest, RecipesSayHowToCut) {
  const auto parsed = [&](const std::string& parallel) {
    write_whole(folder_ / "recipe.toml", "[data]\npath = \"data\"\ntarget = \"y\"\n[parallel]\n" + parallel);
    const Recipe recipe = parse_recipe(folder_ / "recipe.toml");
    write_whole(folder_ / "again.toml", to_toml(recipe));
    EXPECT_EQ(parse_recipe(folder_ / "again.toml"), recipe) << parallel;
    return recipe.parallel;
  };
  EXPECT_EQ(parsed("").cut_by, "");
  EXPECT_EQ(parsed("cuts = \"parameters\"\n").cut_by, "parameters");
  EXPECT_EQ(parsed("cuts = [\"time\"]\n").cuts, std::vector<std::string>{"time"}) << "a layer of that name";
  EXPECT_EQ(parsed("memory_limit_bytes = 1000\n").memory_limit_bytes, 1000);
  EXPECT_NE(error_of([&] { parsed("cuts = \"head\"\n"); }).find("parameters"), std::string::npos);
  Recipe alone = on(1, 1);
  alone.parallel.cut_by = "parameters";
  EXPECT_NE(error_of([&] { prepare(alone); }).find("parallel.cuts means nothing without a pipeline"),
            std::string::npos);
  alone = on(1, 1);
  alone.parallel.memory_limit_bytes = 5;
  EXPECT_NE(error_of([&] { prepare(alone); }).find("parallel.memory_limit_bytes"), std::string::npos);
}

TEST_F(StagePlanTest, CutsByTimeFollowTheLayersTimes) {
  Workload work = prepare(on(1, 2));
  ASSERT_TRUE(work.profile);
  const std::vector<LayerCost> costs = costs_of(*work.profile, 2);
  EXPECT_EQ(work.pipeline->options.starts, partition(costs, {.stages = 2}).starts);
  EXPECT_GT(costs[1].work, 0);
  Recipe by_parameters = on(1, 2);
  by_parameters.parallel.cut_by = "parameters";
  work = prepare(by_parameters);
  EXPECT_FALSE(work.profile) << "needs no measuring";
  Recipe named = on(1, 2);
  named.parallel.cuts = work.recipe.parallel.cuts;
  work = prepare(named);
  EXPECT_FALSE(work.profile) << "nor does this";
  Recipe whole = on(1, 1);
  whole.parallel.recompute = "always";
  work = prepare(whole);
  EXPECT_FALSE(work.profile) << "one stage isn't cut";
  EXPECT_EQ(work.pipeline->options.starts, std::vector<int64_t>{0});
}

TEST_F(StagePlanTest, KeepsALimitOfMemoryOrSaysWhyNot) {
  Recipe recipe = on(1, 2);
  recipe.parallel.memory_limit_bytes = 1000;
  const std::string message = error_of([&] { prepare(recipe); });
  EXPECT_NE(message.find("no partition into 2 stages keeps within memory"), std::string::npos) << message;
  recipe.parallel.memory_limit_bytes = int64_t{1} << 30;
  EXPECT_NO_THROW(prepare(recipe));
}

TEST_F(StagePlanTest, SaysStagesTimesAndMemory) {
  const RunPlan plan = plan_of(on(1, 2, "zb-h1"));
  EXPECT_GT(plan.step_s, 0);
  EXPECT_GT(plan.bubble, 0);
  EXPECT_LT(plan.bubble, 1);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_GT(plan.stages[0].seconds, 0);
  for (const char* words : {"ms a micro-batch", "schedule zb-h1", "predicted"}) {
    EXPECT_NE(plan.text.find(words), std::string::npos) << words << " in\n" << plan.text;
  }
  EXPECT_EQ(plan.text.find("can't gain"), std::string::npos) << plan.text;
}

TEST_F(StagePlanTest, SaysWhenZeroBubbleCannotGain) {
  recipe_.data.time = "when";
  recipe_.data.window = 6;
  recipe_.data.split.by = "time";
  recipe_.model.type = "lstm";
  recipe_.model.layers = 4;
  recipe_.train.batch = 64;
  const RunPlan split = plan_of(on(1, 2, "zb-h1"));
  EXPECT_NE(split.text.find("zb-h1 can't gain much here"), std::string::npos) << split.text;
  EXPECT_EQ(plan_of(on(1, 2, "1f1b")).text.find("can't gain"), std::string::npos);
}

TEST_F(StagePlanTest, ABubbleOfUnevenStagesIsLargerThanOfEvenOnes) {
  Recipe uneven = on(1, 2);
  uneven.model.width = 512;
  uneven.parallel.micro_batches = 8;
  Recipe even = uneven;
  const std::vector<Layer> layers = prepare(even).layers;
  uneven.parallel.cuts = {layers.back().name};  // the head alone
  EXPECT_GT(plan_of(uneven).bubble, plan_of(even).bubble + 0.1);
}

}  // namespace
}  // namespace troika

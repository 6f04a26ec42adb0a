// What a run chooses, keeps and writes beside its losses.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "train/support/flock_recipe.h"
#include "troika/base/error.h"
#include "troika/train/checkpoint.h"
#include "troika/train/rate_schedule.h"
#include "troika/train/run_log.h"
#include "troika/train/trainer.h"

namespace troika {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class RunTest : public testing::Test {
 protected:
  RunTest() {
    write_flock(folder_ / "data", 500);
    recipe_ = flock_recipe(folder_ / "data");
  }

  TrainOptions options(const std::string& run) const {
    TrainOptions options;
    options.run_dir = folder_ / run;
    options.quiet = true;
    options.trial.seconds = 0.1;
    options.trial.shortest_run = 0;
    return options;
  }

  void leave_open() {
    recipe_.parallel.ranks.reset();
    recipe_.parallel.mesh.reset();
    recipe_.parallel.threads_per_rank.reset();
  }

  std::vector<Json> log(const std::string& run, const char* with) const {
    std::vector<Json> lines;
    std::ifstream file(folder_ / run / "run.jsonl");
    for (std::string line; std::getline(file, line);) {
      Json json = Json::parse(line);
      if (json.contains(with)) lines.push_back(std::move(json));
    }
    return lines;
  }

  std::string text(const std::string& run, const char* file) const { return read_text(folder_ / run / file); }

  TemporaryFolder folder_;
  Recipe recipe_;
};

TEST_F(RunTest, AutoIsTheRunOfItsChoice) {
  recipe_.train.epochs = 30;
  leave_open();
  const TrainReport chosen = train(recipe_, options("auto"));
  const Recipe kept = parse_recipe(folder_ / "auto" / "recipe.toml");
  ASSERT_TRUE(kept.parallel.ranks && kept.parallel.threads_per_rank);
  EXPECT_EQ(*kept.parallel.ranks, chosen.mesh.ranks());
  const Json json = Json::parse(report_json(chosen));
  if (!chosen.tried.empty()) {  // there is more than one core
    double best = 0, mine = 0, serial = 0;
    for (const Json& rate : json["auto"]) {
      const double samples_per_s = rate["samples_per_s"];
      best = std::max(best, samples_per_s);
      const bool is_mine = rate["ranks"] == *kept.parallel.ranks &&
                           rate["threads_per_rank"] == *kept.parallel.threads_per_rank;
      if (is_mine) mine = samples_per_s;
      if (rate["ranks"] == 1 && rate["threads_per_rank"] == 1) serial = samples_per_s;
    }
    EXPECT_GE(mine, 0.98 * best);
    EXPECT_GE(mine, serial);
    EXPECT_GT(serial, 0);
  }
  recipe_.parallel.ranks = kept.parallel.ranks;
  recipe_.parallel.threads_per_rank = kept.parallel.threads_per_rank;
  const TrainReport given = train(recipe_, options("given"));
  EXPECT_TRUE(given.tried.empty());
  EXPECT_TRUE(Json::parse(report_json(given))["auto"].is_null());
  EXPECT_EQ(text("auto", "model.safetensors"), text("given", "model.safetensors"));
  EXPECT_EQ(text("auto", "recipe.toml"), text("given", "recipe.toml"));
}

TEST_F(RunTest, AResumedRunKeepsTheChoiceAndTriesNothing) {
  leave_open();
  recipe_.train.steps = 40;
  recipe_.train.epochs.reset();
  TrainOptions o = options("run");
  o.on_step = [](int64_t step, double) { return step < 5; };
  train(recipe_, o);
  std::string toml = text("run", "recipe.toml");
  const size_t at = toml.find("deadline = 30");
  ASSERT_NE(at, std::string::npos);
  toml.replace(toml.find("threads_per_rank = "), 20, "threads_per_rank = 3");  // what another machine chose
  std::ofstream(folder_ / "run" / "recipe.toml") << toml;
  o.on_step = nullptr;
  o.resume = true;
  const TrainReport report = train(recipe_, o);
  EXPECT_TRUE(report.tried.empty());
  EXPECT_EQ(report.threads_per_rank, 3);
}

TEST_F(RunTest, ARunThatEndedInItsTrialBegins) {
  leave_open();
  // As a kill in the trial leaves it: the recipe undecided, and nothing else.
  Recipe parsed = recipe_;
  fs::create_directory(folder_ / "run");
  std::ofstream(folder_ / "run" / "recipe.toml") << to_toml(parsed);
  TrainOptions o = options("run");
  o.resume = true;
  const TrainReport report = train(recipe_, o);
  EXPECT_TRUE(report.finished);
  EXPECT_TRUE(parse_recipe(folder_ / "run" / "recipe.toml").parallel.ranks);
}

// Ctrl-C in the trial: a loss of 0 on one rank would be made up.
TEST_F(RunTest, WhatIsntKnownBeforeTheFirstStepIsNull) {
  TrainReport stopped;
  stopped.run_dir = "somewhere";
  const Json json = Json::parse(report_json(stopped));
  for (const char* key : {"train_loss", "ranks", "mesh", "threads_per_rank"}) {
    EXPECT_TRUE(json.contains(key) && json[key].is_null()) << key;
  }
  EXPECT_EQ(report_text(stopped).find("loss"), std::string::npos);
  EXPECT_NE(report_text(stopped).find("--resume"), std::string::npos);
}

TEST_F(RunTest, ARunWithinAnEpochHasABestToo) {
  recipe_.train.epochs.reset();
  recipe_.train.steps = 3;
  recipe_.train.early_stopping = 1;
  const TrainReport report = train(recipe_, options("run"));
  EXPECT_EQ(report.weights_step, 3);
  EXPECT_TRUE(fs::exists(folder_ / "run" / "best.safetensors"));
  ASSERT_EQ(log("run", "validation_loss").size(), 1u);
  EXPECT_EQ(log("run", "validation_loss")[0]["step"], 3);
  EXPECT_EQ(log("run", "validation_loss")[0]["validation_loss"], *report.validation_loss);
}

TEST_F(RunTest, WhatIsReportedIsTheBestAndItIsWritten) {
  recipe_.train.epochs = 12;
  recipe_.train.optimizer = "sgd";
  recipe_.train.learning_rate = 0.9;  // jumps about
  const TrainReport report = train(recipe_, options("run"));
  double best = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;
  const std::vector<Json> lines = log("run", "validation_loss");
  ASSERT_EQ(lines.size(), 12u);
  for (const Json& line : lines) {
    if (line["validation_loss"] >= best) continue;
    best = line["validation_loss"];
    best_step = line["step"];
  }
  ASSERT_LT(best_step, report.steps) << "the last is the best: nothing is tested";
  EXPECT_EQ(report.weights_step, best_step);
  EXPECT_EQ(*report.validation_loss, best);
  const Checkpoint model = read_checkpoint(folder_ / "run" / "model.safetensors");
  const Checkpoint kept = read_checkpoint(folder_ / "run" / "best.safetensors");
  EXPECT_EQ(model.metadata.at("step"), std::to_string(best_step));
  size_t found = 0;
  for (const NamedTensor& weight : kept.tensors) {
    for (const NamedTensor& written : model.tensors) {
      if ("weights." + written.name != weight.name) continue;
      EXPECT_TRUE(written.tensor.equal(weight.tensor)) << written.name;
      ++found;
    }
  }
  EXPECT_EQ(found, model.tensors.size());
}

TEST_F(RunTest, RateAndNormAreUsedAndLogged) {
  recipe_.train.rate_schedule = "linear";
  recipe_.train.warmup = 3;
  recipe_.train.clip_norm = 0.1;
  const TrainReport report = train(recipe_, options("run"));
  const std::vector<Json> lines = log("run", "loss");
  ASSERT_EQ(lines.size(), static_cast<size_t>(report.steps));
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["learning_rate"],
              learning_rate_at(recipe_.train, static_cast<int64_t>(i), report.steps));
    EXPECT_GT(lines[i]["grad_norm"], 0);
  }
  recipe_.train = {};
  recipe_.train.epochs = 1;
  train(recipe_, options("plain"));
  EXPECT_FALSE(log("plain", "loss")[0].contains("learning_rate"));
  EXPECT_FALSE(log("plain", "loss")[0].contains("grad_norm"));
}

TEST_F(RunTest, StartsFromWeightsOnce) {
  train(recipe_, options("first"));
  recipe_.train.learning_rate = 0;
  recipe_.train.epochs = 1;
  recipe_.train.start_from = folder_ / "first";
  std::string models[2];
  for (const int ranks : {1, 2}) {
    recipe_.parallel.ranks = ranks;
    const std::string run = fmt::format("second{}", ranks);
    train(recipe_, options(run));
    const Checkpoint one = read_checkpoint(folder_ / "first" / "model.safetensors");
    const Checkpoint other = read_checkpoint(folder_ / run / "model.safetensors");
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (size_t i = 0; i < one.tensors.size(); ++i) {
      EXPECT_TRUE(one.tensors[i].tensor.equal(other.tensors[i].tensor)) << one.tensors[i].name;
    }
  }
  // A run that goes on has weights of its own.
  recipe_.train.learning_rate = 0.01;
  recipe_.train.epochs = 2;
  TrainOptions o = options("second2");
  o.resume = true;
  EXPECT_GT(train(recipe_, o).steps, 0);
  // Its own start would be gone before it is read.
  recipe_.train.start_from = folder_ / "first" / "model.safetensors";
  TrainOptions over = options("first");
  over.overwrite = true;
  EXPECT_NE(error_of([&] { train(recipe_, over); }).find("--overwrite would remove first"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(folder_ / "first" / "model.safetensors"));
}

TEST_F(RunTest, EarlyStoppingNeedsValidation) {
  recipe_.train.early_stopping = 2;
  recipe_.data.split.validation = 0;
  EXPECT_NE(error_of([&] { train(recipe_, options("run")); }).find("needs validation rows"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST(RunLog, SaysWhatItWaitsFor) {
  EXPECT_EQ(internal::waiting_text(0.12, 0.03, 0, 0, 1), "waiting: data 12 %, other ranks 3 %");
  EXPECT_EQ(internal::waiting_text(0.009, 0, 0.5, 0.25, 1), "waiting: evaluation 50 %, checkpoints 25 %");
  EXPECT_EQ(internal::waiting_text(0.001, 0, 0, 0, 1), "");
  EXPECT_EQ(internal::waiting_text(0, 0, 0, 0, 0), "");
}

}  // namespace
}  // namespace troika

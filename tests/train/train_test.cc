#include "troika/train/trainer.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"
#include "train/support/flock_recipe.h"
#include "troika/base/error.h"
#include "troika/train/checkpoint.h"

namespace troika {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// 980 rows have a target, of which 80 % train: 784 = 12 batches of 64 and one of 16.
constexpr int64_t kRows = 1000, kStepsPerEpoch = 13;

class TrainTest : public testing::Test {
 protected:
  TrainTest() {
    write_flock(folder_ / "data", kRows);
    recipe_ = flock_recipe(folder_ / "data");
    recipe_.data.features = {"x", "count", "flag", "kind"};
  }

  TrainOptions options(const std::string& run) const {
    TrainOptions options;
    options.run_dir = folder_ / run;
    options.quiet = true;
    return options;
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> found;
    std::ifstream file(folder_ / run / "run.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line);
      if (!json.contains("loss")) continue;
      found.push_back(json["loss"]);
      EXPECT_EQ(json["step"], found.size()) << run;  // every step once, in order
    }
    return found;
  }

  void expect_same_weights(const std::string& a, const std::string& b) const {
    const Checkpoint one = read_checkpoint(folder_ / a / "last.safetensors");
    const Checkpoint other = read_checkpoint(folder_ / b / "last.safetensors");
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (size_t i = 0; i < one.tensors.size(); ++i) {
      EXPECT_EQ(one.tensors[i].name, other.tensors[i].name);
      EXPECT_TRUE(at::equal(one.tensors[i].tensor, other.tensors[i].tensor)) << one.tensors[i].name;
    }
  }

  std::string message(const Recipe& recipe, const TrainOptions& options) const {
    try {
      train(recipe, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
  Recipe recipe_;
};

TEST_F(TrainTest, LearnsAndReports) {
  recipe_.train.epochs = 30;
  TrainOptions o = options("run");
  o.record_trace = true;
  const TrainReport report = train(recipe_, o);
  EXPECT_TRUE(report.finished);
  EXPECT_EQ(report.steps, 30 * kStepsPerEpoch);
  ASSERT_TRUE(report.test && report.baselines.size() == 1 && report.validation);
  EXPECT_LT((*report.test)["rmse"], 0.2 * (*report.baselines[0].test)["rmse"]);
  EXPECT_NEAR(report.validation->samples, 98, 20);  // a tenth, drawn row by row
  const Json json = Json::parse(report_json(report));
  EXPECT_EQ(json["ranks"], 1);
  EXPECT_GT(json["samples_per_s"], 0);
  EXPECT_GT(json["peak_rss_bytes"], 1000000);
  EXPECT_EQ(json["metrics"]["test"]["rmse"], (*report.test)["rmse"]);
  EXPECT_EQ(json["stages"][0]["layers"], (std::vector<std::string>{"embed", "hidden1", "hidden2", "head"}));
  std::vector<std::string> actions;
  for (const Span& span : report.trace.spans) {
    actions.push_back(to_string(span.action));
    EXPECT_LE(span.start_s, span.end_s);
  }
  EXPECT_EQ(actions, (std::vector<std::string>{"0L0", "0F0", "0B0", "0R", "0O"}));
  EXPECT_TRUE(fs::exists(folder_ / "run" / "best.safetensors"));
  EXPECT_EQ(parse_recipe(folder_ / "run" / "recipe.toml").parallel.mesh, Mesh{});
  EXPECT_FALSE(fs::exists(folder_ / "run" / "lock"));
}

TEST_F(TrainTest, TheNumberOfRanksDoesNotMatter) {
  for (const char* weights : {"shared", "replicated"}) {
    for (const int64_t micro_batches : {1, 3}) {
      recipe_.parallel.weights = weights;
      recipe_.parallel.micro_batches = micro_batches;
      std::vector<double> first;
      for (const int ranks : {1, 2, 3}) {
        recipe_.parallel.ranks = ranks;
        const std::string run = fmt::format("{}-{}-{}", weights, micro_batches, ranks);
        const TrainReport report = train(recipe_, options(run));
        std::vector<double> now = losses(run);
        now.push_back(*report.validation_loss);
        now.push_back((*report.test)["rmse"]);
        ASSERT_EQ(now.size(), 2 * kStepsPerEpoch + 2);
        if (first.empty()) first = now;
        // Sums of another order of pieces, over 26 updates: rounding in float32, amplified by AdamW's
        // division.
        for (size_t i = 0; i < now.size(); ++i)
          EXPECT_NEAR(now[i], first[i], 1e-4 * std::abs(first[i])) << run << i;
      }
    }
  }
}

TEST_F(TrainTest, EverySampleOncePerEpochWithAnUnevenLastBatch) {
  // With a learning rate of 0 the weights stay, so the weighted mean of the steps' losses is the epoch's loss
  // only if every sample counts once, whatever the batch.
  recipe_.train.learning_rate = 0;
  recipe_.train.epochs = 1;
  const double whole = train(recipe_, options("a")).train_loss;
  for (const int64_t batch : {1000, 100, 7}) {
    recipe_.train.batch = batch;
    EXPECT_NEAR(train(recipe_, options(std::to_string(batch))).train_loss, whole, 1e-6 * whole);
  }
}

TEST_F(TrainTest, StoppedAndResumedIsBitForBitTheUnbrokenRun) {
  for (const int ranks : {1, 2}) {
    recipe_.parallel.ranks = ranks;
    const std::string whole = fmt::format("whole{}", ranks), broken = fmt::format("broken{}", ranks);
    train(recipe_, options(whole));
    TrainOptions o = options(broken);
    for (const int64_t stop : {5, 13, 20}) {  // within an epoch, at its end, and again
      o.on_step = [stop](int64_t step, double) { return step < stop; };
      const TrainReport report = train(recipe_, o);
      EXPECT_FALSE(report.finished);
      EXPECT_EQ(report.steps, stop);
      o.resume = true;
    }
    o.on_step = nullptr;
    const TrainReport report = train(recipe_, o);
    EXPECT_TRUE(report.finished);
    EXPECT_EQ(losses(broken), losses(whole));
    expect_same_weights(broken, whole);
  }
}

TEST_F(TrainTest, ResumesWithAnotherNumberOfRanksWithinTolerance) {
  train(recipe_, options("whole"));
  TrainOptions o = options("broken");
  o.on_step = [](int64_t step, double) { return step < 9; };
  train(recipe_, o);
  o.on_step = nullptr;
  o.resume = true;
  recipe_.parallel.ranks = 3;
  train(recipe_, o);
  const std::vector<double> a = losses("whole"), b = losses("broken");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4 * std::abs(a[i]));
}

TEST_F(TrainTest, KilledAndResumedIsBitForBitTheUnbrokenRun) {
  recipe_.train.checkpoint_every = 4;
  train(recipe_, options("whole"));
  for (const int64_t last_words :
       {2, 10, 17}) {  // before the first checkpoint, between two, in the second epoch
    const pid_t child = ::fork();
    if (child == 0) {
      TrainOptions o = options("broken");
      o.resume = fs::exists(folder_ / "broken");
      o.on_step = [last_words](int64_t step, double) {
        if (step == last_words) ::raise(SIGKILL);
        return true;
      };
      train(recipe_, o);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  TrainOptions o = options("broken");
  o.resume = true;
  EXPECT_TRUE(train(recipe_, o).finished);
  EXPECT_EQ(losses("broken"), losses("whole"));
  expect_same_weights("broken", "whole");
}

TEST_F(TrainTest, DropoutIsResumable) {
  recipe_.model.dropout = 0.3;
  train(recipe_, options("whole"));
  TrainOptions o = options("broken");
  o.on_step = [](int64_t step, double) { return step < 9; };
  train(recipe_, o);
  o.on_step = nullptr;
  o.resume = true;
  train(recipe_, o);
  EXPECT_EQ(losses("broken"), losses("whole"));
}

TEST_F(TrainTest, ResumeRefusesAnotherRunAndNamesWhy) {
  recipe_.train.epochs = 1;
  train(recipe_, options("run"));
  TrainOptions o = options("run");
  o.resume = true;
  Recipe other = recipe_;
  other.train.batch = 32;
  other.model.width = 8;
  const std::string text = message(other, o);
  EXPECT_NE(text.find("model.width is 8, the run has 16; train.batch is 32, the run has 64"),
            std::string::npos)
      << text;
  write_flock(folder_ / "data", kRows + 1);
  EXPECT_NE(message(recipe_, o).find("the dataset has changed"), std::string::npos) << message(recipe_, o);
  write_flock(folder_ / "data", kRows);
  recipe_.train.epochs = 2;  // going on for longer is fine
  EXPECT_EQ(train(recipe_, o).steps, 2 * kStepsPerEpoch);
  EXPECT_EQ(train(recipe_, o).steps, 2 * kStepsPerEpoch);  // and so is having nothing left to do
}

TEST_F(TrainTest, ADamagedCheckpointIsNamed) {
  recipe_.train.epochs = 1;
  train(recipe_, options("run"));
  const Path last = folder_ / "run" / "last.safetensors";
  std::string text = read_text(last);
  text[text.size() - 5] = static_cast<char>(text[text.size() - 5] ^ 1);
  std::ofstream(last, std::ios::binary) << text;
  TrainOptions o = options("run");
  o.resume = true;
  EXPECT_NE(message(recipe_, o).find("last.safetensors is damaged"), std::string::npos)
      << message(recipe_, o);
}

TEST_F(TrainTest, EarlyStopping) {
  recipe_.train.epochs = 50;
  recipe_.train.learning_rate = 0;  // never better than the first
  recipe_.train.early_stopping = 2;
  const TrainReport report = train(recipe_, options("run"));
  EXPECT_TRUE(report.finished);
  EXPECT_EQ(report.steps, 3 * kStepsPerEpoch);
}

TEST_F(TrainTest, Classification) {
  recipe_.train.epochs = 25;
  for (const char* target : {"good", "sort"}) {
    recipe_.data.targets = {target};
    const TrainReport report = train(recipe_, options(target));
    EXPECT_GT((*report.test)["accuracy"], 0.9) << target;
    EXPECT_LT((*report.baselines[0].test)["accuracy"], 0.8);
    // log_loss is the loss, computed apart from it.
    EXPECT_NEAR((*report.validation)["log_loss"], *report.validation_loss, 1e-5);
  }
}

TEST_F(TrainTest, SeveralTargetsAndDoublePrecision) {
  recipe_.data.targets = {"y", "y2"};
  recipe_.train.precision = "float64";
  recipe_.train.epochs = 30;
  const TrainReport report = train(recipe_, options("run"));
  EXPECT_GT((*report.test)["y.r2"], 0.9);
  EXPECT_GT((*report.test)["y2.r2"], 0.9);
}

TEST_F(TrainTest, DivergenceStopsTheRunAndKeepsTheCheckpoint) {
  recipe_.train.optimizer = "sgd";
  recipe_.train.learning_rate = 1e-3;
  recipe_.train.epochs = 1;
  for (const int ranks : {1, 2}) {
    const std::string run = fmt::format("run{}", ranks);
    recipe_.parallel.ranks = ranks;
    recipe_.train.epochs = 1;
    recipe_.train.learning_rate = 1e-3;
    train(recipe_, options(run));
    recipe_.train.epochs = 3;
    recipe_.train.learning_rate = 1e6;
    TrainOptions o = options(run);
    o.resume = true;
    const std::string text = message(recipe_, o);
    EXPECT_NE(text.find("step "), std::string::npos) << text;
    EXPECT_NE(text.find("not"), std::string::npos) << text;
    EXPECT_NE(text.find("The last checkpoint is kept"), std::string::npos) << text;
    read_checkpoint(folder_ / run / "last.safetensors");
  }
}

TEST_F(TrainTest, BadInputsAreNamedAndLeaveNothing) {
  const auto refused = [&](const std::string& part, const std::function<void(Recipe&)>& spoil) {
    Recipe bad = recipe_;
    spoil(bad);
    const std::string text = message(bad, options("runs/bad"));
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_FALSE(fs::exists(folder_ / "runs")) << text;
  };
  refused("nowhere", [&](Recipe& r) { r.data.path = folder_ / "nowhere"; });
  refused("\"yy\"", [](Recipe& r) { r.data.targets = {"yy"}; });
  refused("\"xx\"", [](Recipe& r) { r.data.features = {"xx"}; });
  refused("needs a number", [](Recipe& r) {
    r.data.targets = {"sort"};
    r.train.loss = "mse";
  });
  refused("is null in all 1000 rows", [](Recipe& r) { r.data.targets = {"empty"}; });
  refused("is null in all 1000 rows", [](Recipe& r) { r.data.features = {"empty"}; });
  refused("4", [](Recipe& r) {
    r.parallel.ranks = 4;
    r.parallel.mesh = Mesh{2, 1, 1};
  });
  write_flock(folder_ / "nulls", 100, true);
  refused("is null in all 100 rows", [&](Recipe& r) { r.data.path = folder_ / "nulls"; });

  write_flock(folder_ / "cut", kRows);
  fs::resize_file(folder_ / "cut" / "x-000000.npy", 1000);
  refused("x-000000.npy", [&](Recipe& r) { r.data.path = folder_ / "cut"; });
  write_flock(folder_ / "flipped", kRows);
  {
    std::fstream file(folder_ / "flipped" / "x-000000.npy", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(9000);
    file.put('\x55');
  }
  refused("x-000000.npy", [&](Recipe& r) { r.data.path = folder_ / "flipped"; });
}

}  // namespace
}  // namespace troika

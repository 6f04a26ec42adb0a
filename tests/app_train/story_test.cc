// The commands that train, as a user runs them: from a CSV to a proven run, and what happens when it goes
// wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/command.h"
#include "support/temporary_folder.h"

namespace troika {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Story : public testing::Test {
 protected:
  Story() {
    std::ofstream csv(folder_ / "data.csv");
    csv << "x,kind,y\n";
    for (int i = 0; i < 600; ++i) {
      csv << std::sin(i * 0.7) << ',' << (i % 3 == 0 ? "a" : "b") << ',';
      if (i % 50 != 7) csv << 3 * std::sin(i * 0.7) + (i % 3 == 0 ? 1 : 0);  // else: no target
      csv << '\n';
    }
    std::ofstream(folder_ / "recipe.toml") << "[data]\npath = \"data\"\ntarget = \"y\"\n[model]\nwidth = 16\n"
                                              "[train]\nepochs = 20\nbatch = 37\nlearning_rate = 0.01\n"
                                              "log_every = 1\n";
  }

  CommandResult run(std::vector<std::string> arguments) { return run_troika(arguments, folder_.path()); }

  void pack() {
    const CommandResult packed = run({"pack", "data.csv", "-o", "data", "--quiet"});
    ASSERT_EQ(packed.status, 0) << packed.err;
  }

  std::vector<Json> log(const std::string& run_dir) {
    std::ifstream file((folder_ / run_dir) / "run.jsonl");
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) {
      if (const Json json = Json::parse(line); json.contains("loss")) lines.push_back(json);
    }
    return lines;
  }

  TemporaryFolder folder_;
};

TEST_F(Story, FromACsvToAProvenRun) {
  pack();
  double losses[2];
  for (const int ranks : {1, 2}) {
    const CommandResult trained = run({"train", "recipe.toml", "--ranks", std::to_string(ranks), "--run-dir",
                                       "run" + std::to_string(ranks), "--json", "--trace", "step.svg"});
    ASSERT_EQ(trained.status, 0) << trained.err;
    const Json report = Json::parse(trained.out);
    EXPECT_EQ(report["ranks"], ranks);
    EXPECT_LT(report["metrics"]["test"]["rmse"], 0.3 * report["metrics"]["baseline"]["rmse"].get<double>());
    losses[ranks - 1] = report["train_loss"];
    EXPECT_TRUE(fs::exists(folder_ / "step.svg"));
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-4 * losses[0]);
  const std::vector<Json> lines = log("run2");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front()["step"], 1);
  for (const char* key : {"step", "epoch", "loss", "samples_per_s", "seconds"}) {
    EXPECT_TRUE(lines.back().contains(key)) << key;
  }

  for (const char* weights : {"shared", "replicated"}) {
    const CommandResult verified = run(
        {"verify", "recipe.toml", "--ranks", "3", "--micro-batches", "2", "--weights", weights, "--json"});
    ASSERT_EQ(verified.status, 0) << verified.err << verified.out;
    const Json result = Json::parse(verified.out);
    EXPECT_EQ(result["equal"], true);
    EXPECT_EQ(result["bitwise"], true);
    EXPECT_EQ(result["mesh"]["data"], 3);
    EXPECT_EQ(result["compared"]["losses"], 3);
    EXPECT_TRUE(result["first_difference"].is_null());
  }
}

TEST_F(Story, VerifyNeedsSeveralRanksAndSaysWhatItChose) {
  pack();
  const CommandResult result = run({"verify", "recipe.toml", "--steps", "1", "--precision", "float32"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("verifying data=2"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("bit for bit"), std::string::npos) << result.out;
}

TEST_F(Story, ARunIsNotReplacedByAccident) {
  pack();
  ASSERT_EQ(run({"train", "recipe.toml", "--run-dir", "r", "--set", "train.steps=3"}).status, 0);
  const CommandResult again = run({"train", "recipe.toml", "--run-dir", "r", "--set", "train.steps=3"});
  EXPECT_EQ(again.status, 2);
  EXPECT_NE(again.err.find("--resume"), std::string::npos) << again.err;
  EXPECT_EQ(run({"train", "recipe.toml", "--run-dir", "r", "--set", "train.steps=3", "--overwrite"}).status,
            0);
}

// The alarm of run_troika ends the process at once, as kill -9 would; the run goes on from its last
// checkpoint and logs the very losses of an unbroken one.
TEST_F(Story, AnEndedProcessIsResumed) {
  pack();
  const std::vector<std::string> command = {"train",
                                            "recipe.toml",
                                            "--ranks",
                                            "2",
                                            "--quiet",
                                            "--set",
                                            "train.steps=40000",
                                            "--set",
                                            "train.checkpoint_every=20"};
  std::vector<std::string> broken = command;
  broken.insert(broken.end(), {"--run-dir", "broken"});
  ASSERT_EQ(run_troika(broken, folder_.path(), 2).status, 128 + SIGALRM);
  const size_t done = log("broken").size();
  ASSERT_GT(done, 20u);
  ASSERT_LT(done, 40000u);
  const std::string steps = "train.steps=" + std::to_string(done + 50);
  const auto with_steps = [&](std::vector<std::string> arguments) {
    arguments[6] = steps;
    return arguments;
  };
  broken.push_back("--resume");
  const CommandResult resumed = run(with_steps(broken));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  std::vector<std::string> unbroken = with_steps(command);
  unbroken.insert(unbroken.end(), {"--run-dir", "unbroken"});
  ASSERT_EQ(run(unbroken).status, 0);
  const std::vector<Json> one = log("broken"), other = log("unbroken");
  ASSERT_EQ(one.size(), done + 50);
  ASSERT_EQ(other.size(), done + 50);
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i]["step"], i + 1);
    ASSERT_EQ(one[i]["loss"], other[i]["loss"]) << "step " << i + 1;
  }
}

TEST_F(Story, BadInputLeavesNothingBehind) {
  pack();
  const std::vector<std::vector<std::string>> bad = {
      {"--set", "data.target=\"z\""},
      {"--set", "data.path=\"nowhere\""},
      {"--set", "train.bacth=3"},
      {"--mesh", "data=2", "--ranks", "3"},
      {"--set", "data.target=\"kind\"", "--set", "train.loss=\"mse\""},
      {"--ranks", "2", "--set", "train.learning_rate=1e30", "--set", "train.optimizer=\"sgd\""},
      {"--trace", "nowhere/step.svg"},
  };
  for (std::vector<std::string> arguments : bad) {
    arguments.insert(arguments.begin(), {"train", "recipe.toml", "--run-dir", "deep/run"});
    const CommandResult result = run(arguments);
    EXPECT_TRUE(result.status == 1 || result.status == 2) << result.status << " " << arguments.back();
    EXPECT_NE(result.err.find("troika: "), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(folder_ / "deep")) << arguments.back();
  }
}

}  // namespace
}  // namespace troika

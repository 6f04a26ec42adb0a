// The commands that train, as a user runs them: from a CSV to a proven run, and what happens when it goes
// wrong.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
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

  /// Hours of a wave, as windows for an lstm with dropout.
  void pack_series() {
    std::ofstream csv(folder_ / "series.csv");
    csv << "t,x,y\n";
    for (int i = 0; i < 500; ++i) {
      char time[32];
      std::snprintf(time, sizeof time, "2013-01-%02d %02d:00:00", 1 + i / 24, i % 24);
      csv << time << ',' << std::sin(i * 0.3) << ',' << std::cos(i * 0.3) << '\n';
    }
    csv.close();
    const CommandResult packed = run({"pack", "series.csv", "-o", "series", "--quiet"});
    ASSERT_EQ(packed.status, 0) << packed.err;
    std::ofstream(folder_ / "lstm.toml")
        << "[data]\npath = \"series\"\ntarget = \"y\"\ntime = \"t\"\nwindow = 8\nsplit = {by = \"time\"}\n"
           "[model]\ntype = \"lstm\"\nwidth = 16\nlayers = 2\ndropout = 0.2\n[train]\nepochs = 8\nbatch = "
           "16\n"
           "log_every = 1\ncheckpoint_every = 7\nclip_norm = 1.0\nrate_schedule = \"cosine\"\n";
  }

  /// Sends `signal` once the command has printed `lines` lines; its status as CommandResult has it.
  int run_and_signal(std::vector<std::string> arguments, int lines, int signal) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string program = TROIKA_BINARY_DIR "/troika";
      std::vector<char*> argv{const_cast<char*>("troika")};
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::dup2(ends[1], STDERR_FILENO);
      ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
      if (::chdir(folder_.path().c_str()) != 0) ::_exit(126);
      ::alarm(60);
      ::execv(program.c_str(), argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    char byte = 0;
    while (::read(ends[0], &byte, 1) == 1) {
      if (byte == '\n' && --lines == 0) ::kill(child, signal);
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::vector<double> losses(const std::string& run_dir) {
    std::vector<double> found;
    for (const Json& line : log(run_dir)) found.push_back(line["loss"]);
    return found;
  }

  std::string text(const std::string& file) {
    std::ostringstream content;
    content << std::ifstream(folder_ / file, std::ios::binary).rdbuf();
    return content.str();
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

// Two lines say what the data is; then the trial begins, and the run after it says a line each epoch.
TEST_F(Story, KilledAnywhereItEndsAsTheUnbrokenRun) {
  pack();
  pack_series();
  for (const char* recipe : {"recipe.toml", "lstm.toml"}) {
    const std::string broken = std::string("broken-") + recipe, whole = std::string("whole-") + recipe;
    std::vector<std::string> command = {"train", recipe, "--ranks", "auto", "--run-dir", broken};
    // The trial's table and the lines of the run differ in number from machine to machine: so do the moments.
    for (const int lines : {2, 3, 5, 9, 12, 16}) {
      const int status = run_and_signal(command, lines, lines == 3 ? SIGINT : SIGKILL);
      if (status == 0) break;
      EXPECT_EQ(status, lines == 3 ? 1 : 128 + SIGKILL) << recipe << " " << lines;
      // Killed before it had locked its directory, a run left nothing to go on with.
      const bool begun =
          fs::exists(folder_ / broken / "lock") || fs::exists(folder_ / broken / "recipe.toml");
      if (command.back() != "--resume" && begun) command.push_back("--resume");
    }
    const CommandResult resumed = run(command);
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    const std::string chosen = text(broken + "/recipe.toml");
    const auto number = [&](const std::string& key) {
      return std::to_string(std::stoi(chosen.substr(chosen.find("\n" + key + " = ") + key.size() + 4)));
    };
    const CommandResult unbroken =
        run({"train", recipe, "--ranks", number("ranks"), "--set",
             "parallel.threads_per_rank=" + number("threads_per_rank"), "--run-dir", whole});
    ASSERT_EQ(unbroken.status, 0) << unbroken.err;
    EXPECT_EQ(losses(broken), losses(whole));
    EXPECT_EQ(text(broken + "/model.safetensors"), text(whole + "/model.safetensors"));
    EXPECT_EQ(text(broken + "/recipe.toml"), text(whole + "/recipe.toml"));
  }
}

TEST_F(Story, AutoSaysWhatItTriedAndChose) {
  pack();
  const CommandResult trained = run(
      {"train", "recipe.toml", "--ranks", "auto", "--run-dir", "run", "--json", "--set", "train.epochs=400"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Json report = Json::parse(trained.out);
  EXPECT_NE(trained.err.find("auto: "), std::string::npos) << trained.err;
  EXPECT_NE(text("run/recipe.toml").find("ranks = " + report["ranks"].dump() + "\n"), std::string::npos);
  double serial = 0, chosen = 0;
  for (const Json& rate : report["auto"]) {
    if (rate["ranks"] == 1 && rate["threads_per_rank"] == 1) serial = rate["samples_per_s"];
    if (rate["ranks"] == report["ranks"] && rate["threads_per_rank"] == report["threads_per_rank"]) {
      chosen = rate["samples_per_s"];
    }
  }
  EXPECT_GE(chosen, serial);
  const CommandResult bad = run({"train", "recipe.toml", "--ranks", "fast"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_NE(bad.err.find("fast"), std::string::npos) << bad.err;
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

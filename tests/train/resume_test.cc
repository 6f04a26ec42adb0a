// A run that is killed again and again, at any moment and in the middle of writing its files, ends with the
// weights and the log of an unbroken one.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"
#include "train/support/flock_recipe.h"
#include "troika/base/error.h"
#include "troika/train/checkpoint.h"
#include "troika/train/trainer.h"

namespace troika {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The moment at which a life ends, counted in its own steps.
struct Death {
  enum class How { killed, writing_checkpoint, writing_log } how = How::killed;
  int64_t after_steps = 0;
  double part = 0;  // of the checkpoint that is written before it
};

/// Deaths as a function of a number, so that a failure can be run again.
Death death(uint64_t key, uint64_t life) {
  const auto draw = [&](uint64_t what, int64_t below) {
    return static_cast<int64_t>(uniform(key, 8 * life + what) * static_cast<double>(below));
  };
  return {static_cast<Death::How>(draw(0, 3)), 1 + draw(1, 6), uniform(key, 8 * life + 2)};
}

class ResumeTest : public testing::Test {
 protected:
  ResumeTest() {
    write_flock(folder_ / "data", 500);
    recipe_ = flock_recipe(folder_ / "data");
    recipe_.model.width = 24;
    recipe_.model.dropout = 0.3;
    recipe_.train.epochs = 3;
    recipe_.train.batch = 48;
    recipe_.train.rate_schedule = "cosine";
    recipe_.train.warmup = 4;
    recipe_.train.clip_norm = 0.5;
    recipe_.train.checkpoint_every = 3;
  }

  void use_windows() {
    recipe_.model.type = "lstm";
    recipe_.model.layers = 2;
    recipe_.data.time = "when";
    recipe_.data.window = 5;
    recipe_.data.split.by = "time";
  }

  TrainOptions options(const std::string& run) const {
    TrainOptions options;
    options.run_dir = folder_ / run;
    options.quiet = true;
    return options;
  }

  /// The largest file that may be written from now on; the write that crosses it ends the process.
  static void limit_files(uint64_t bytes) {
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

  uint64_t log_bytes(const std::string& run) const {
    uint64_t most = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / run)) {
      const std::string name = entry.path().filename();
      if (name == "run.jsonl" || name.find("tfevents") != std::string::npos) {
        most = std::max<uint64_t>(most, entry.file_size());
      }
    }
    return most;
  }

  /// One life of the run, as a process of its own. True if it lived to the end.
  bool live(const std::string& run, const Death& death) const {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      at::set_num_threads(
          1);  // torch makes its pool anew after a fork, but not for two ranks at the same time
      TrainOptions o = options(run);
      o.resume = fs::exists(folder_ / run);
      int64_t lived = 0;
      o.on_step = [&](int64_t, double) {
        if (++lived != death.after_steps) return true;
        const uint64_t log = log_bytes(run);
        switch (death.how) {
          case Death::How::killed:
            ::raise(SIGKILL);
            break;
          case Death::How::writing_log:
            limit_files(log);
            break;
          case Death::How::writing_checkpoint:
            // Above the log's size, so that it is a checkpoint that stays unfinished.
            limit_files(log + 300 + static_cast<uint64_t>(death.part * 8000));
            break;
        }
        return true;
      };
      try {
        train(recipe_, o);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(3);
      }
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
      EXPECT_TRUE(WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGXFSZ) << WTERMSIG(status);
      return false;
    }
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return true;
  }

  /// The log without what depends on the clock.
  std::vector<Json> log(const std::string& run) const {
    std::vector<Json> lines;
    std::ifstream file(folder_ / run / "run.jsonl");
    for (std::string line; std::getline(file, line);) {
      Json json = Json::parse(line);
      json.erase("seconds");
      json.erase("samples_per_s");
      lines.push_back(std::move(json));
    }
    return lines;
  }

  void expect_same(const std::string& a, const std::string& b) const {
    EXPECT_EQ(log(a), log(b));
    EXPECT_EQ(read_text(folder_ / a / "model.safetensors"), read_text(folder_ / b / "model.safetensors"));
    for (const char* name : {"last.safetensors", "best.safetensors"}) {
      const Checkpoint one = read_checkpoint(folder_ / a / name), other = read_checkpoint(folder_ / b / name);
      ASSERT_EQ(one.tensors.size(), other.tensors.size());
      for (size_t i = 0; i < one.tensors.size(); ++i) {
        EXPECT_TRUE(at::equal(one.tensors[i].tensor, other.tensors[i].tensor)) << one.tensors[i].name;
      }
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / b)) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();  // nothing half-written stays
    }
  }

  void expect_survives(uint64_t key) {
    const std::string whole = fmt::format("whole{}", key), broken = fmt::format("broken{}", key);
    train(recipe_, options(whole));
    uint64_t life = 0;
    while (!live(broken, death(key, life))) ASSERT_LT(++life, 60u);
    EXPECT_GE(life, 3u);
    expect_same(whole, broken);
  }

  TemporaryFolder folder_;
  Recipe recipe_;
};

TEST_F(ResumeTest, AnMlpOnOneRank) { expect_survives(1); }

TEST_F(ResumeTest, AnMlpOnTwoRanks) {
  recipe_.parallel.ranks = 2;
  recipe_.parallel.micro_batches = 2;
  expect_survives(2);
}

TEST_F(ResumeTest, AnLstmOnTwoRanks) {
  use_windows();
  recipe_.parallel.ranks = 2;
  recipe_.parallel.weights = "replicated";
  expect_survives(3);
}

TEST_F(ResumeTest, ALifeAtATime) {
  // Each kind of end at every step of an epoch, and on to the end of the run in one go.
  recipe_.train.epochs = 2;
  train(recipe_, options("whole"));
  for (const auto how : {Death::How::killed, Death::How::writing_checkpoint, Death::How::writing_log}) {
    for (const int64_t step : {1, 3, 9}) {  // before any checkpoint, at the first one, at the epoch's end
      const std::string run = fmt::format("{}-{}", static_cast<int>(how), step);
      EXPECT_FALSE(live(run, {how, step, 0.5})) << run;
      EXPECT_TRUE(live(run, {})) << run;
      expect_same("whole", run);
    }
  }
}

TEST_F(ResumeTest, TheBestIsMadeGoodIfItWasLost) {
  recipe_.train.epochs = 2;
  train(recipe_, options("whole"));
  TrainOptions o = options("broken");
  o.on_step = [](int64_t step, double) { return step < 9; };  // an epoch, which is the best so far
  train(recipe_, o);
  fs::remove(folder_ / "broken" / "best.safetensors");  // killed between the two files
  o.on_step = nullptr;
  o.resume = true;
  o.on_step = [](int64_t step, double) { return step < 10; };
  train(recipe_, o);
  EXPECT_TRUE(fs::exists(folder_ / "broken" / "best.safetensors"));
  o.on_step = nullptr;
  train(recipe_, o);
  expect_same("whole", "broken");
}

}  // namespace
}  // namespace troika

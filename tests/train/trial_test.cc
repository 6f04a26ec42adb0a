#include "troika/train/trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "train/support/flock_recipe.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

const RanksFit kAnyFits = [](int64_t) { return true; };

std::string names(const std::vector<Layout>& layouts) {
  std::string text;
  for (const Layout& layout : layouts)
    text += fmt::format("{}{}x{}", text.empty() ? "" : " ", layout.ranks, layout.threads);
  return text;
}

TEST(TrialCandidates, AreTheSensibleOnes) {
  EXPECT_EQ(names(candidate_layouts(1, 0, kAnyFits)), "1x1");
  EXPECT_EQ(names(candidate_layouts(2, 0, kAnyFits)), "1x1 2x1 1x2");
  EXPECT_EQ(names(candidate_layouts(3, 0, kAnyFits)), "1x1 3x1 1x3 2x1");
  EXPECT_EQ(names(candidate_layouts(4, 0, kAnyFits)), "1x1 4x1 1x4 2x2 2x1");
  EXPECT_EQ(names(candidate_layouts(6, 0, kAnyFits)), "1x1 6x1 1x6 4x1 3x2 2x3 3x1 2x1");
  EXPECT_EQ(names(candidate_layouts(64, 0, kAnyFits)),
            "1x1 64x1 1x64 32x2 16x4 8x8 4x16 2x32 32x1 16x1 8x1 4x1 2x1");
}

TEST(TrialCandidates, OnlyThoseThatFit) {
  EXPECT_EQ(names(candidate_layouts(4, 0, [](int64_t ranks) { return ranks <= 2; })), "1x1 1x4 2x2 2x1");
  EXPECT_EQ(names(candidate_layouts(8, 2, kAnyFits)), "1x2 4x2 2x2");
  EXPECT_EQ(names(candidate_layouts(2, 2, kAnyFits)), "1x2");
  EXPECT_EQ(names(candidate_layouts(2, 5, kAnyFits)), "1x5");  // the user's wish, and nothing beside it
}

TEST(TrialCandidates, NeverCrowdTheCores) {
  for (int cores = 1; cores <= 130; ++cores) {
    for (const int64_t threads : {0, 1, 2, 3, 16}) {
      const std::vector<Layout> found = candidate_layouts(cores, threads, kAnyFits);
      EXPECT_EQ(found.front(), (Layout{1, std::max<int64_t>(threads, 1)}));  // serial is the first
      EXPECT_LE(found.size(), 16u);
      for (size_t i = 1; i < found.size(); ++i) {
        EXPECT_LE(found[i].ranks * found[i].threads, cores);
        EXPECT_EQ(std::ranges::count(found, found[i]), 1);
      }
    }
  }
}

/// A machine on which a step of a layout takes as long as the test says.
struct FakeMachine {
  std::map<std::pair<int64_t, int64_t>, double> step_seconds;
  std::vector<std::string> order;
  double spent = 0;
  int interrupt_at = -1;                          // the block that Ctrl-C comes in
  std::function<double(size_t block)> disturbed;  // factor on the time of the block

  MeasureBlock measure() {
    return [this](const Layout& layout, double seconds, int64_t most_steps) {
      const double disturbance = disturbed ? disturbed(order.size()) : 1;
      TrialBlock block;
      block.interrupted = static_cast<int>(order.size()) == interrupt_at;
      order.push_back(names({layout}));
      const double step = step_seconds.at({layout.ranks, layout.threads}) * disturbance;
      spent += step;  // the warm-up
      do {
        ++block.steps;
        block.samples += 10;
        block.seconds += step;
      } while ((block.seconds < seconds && block.steps < most_steps) || block.steps < 2);
      spent += block.seconds;
      return block;
    };
  }

  TrialResult trial(int64_t total_steps, int cores = 2) {
    Progress quiet(true);
    return run_trial(candidate_layouts(cores, 0, kAnyFits), total_steps, {}, measure(), quiet);
  }
};

TEST(Trial, TakesTheFastestWhicheverItIs) {
  const std::vector<std::pair<std::map<std::pair<int64_t, int64_t>, double>, Layout>> cases = {
      {{{{1, 1}, 0.010}, {{2, 1}, 0.006}, {{1, 2}, 0.008}}, {2, 1}},
      {{{{1, 1}, 0.010}, {{2, 1}, 0.012}, {{1, 2}, 0.006}}, {1, 2}},
      {{{{1, 1}, 0.004}, {{2, 1}, 0.005}, {{1, 2}, 0.006}}, {1, 1}},
      {{{{1, 1}, 0.01}, {{2, 1}, 0.0099}, {{1, 2}, 0.0099}}, {1, 1}},  // 1 % is no reason
      {{{{1, 1}, 0.01}, {{2, 1}, 0.0060}, {{1, 2}, 0.0061}}, {1, 2}},  // the simpler of two
      {{{{1, 1}, 0.01}, {{2, 1}, 0.0060}, {{1, 2}, 0.0062}}, {2, 1}},  // more than 2 % apart
  };
  for (const auto& [seconds, expected] : cases) {
    FakeMachine machine{seconds, {}, 0, -1, {}};
    const TrialResult result = machine.trial(100000);
    EXPECT_EQ(result.chosen, expected) << trial_table(result);
    ASSERT_EQ(result.rates.size(), 3u);
    for (const LayoutRate& rate : result.rates) {
      EXPECT_NEAR(rate.samples_per_s, 10 / seconds.at({rate.layout.ranks, rate.layout.threads}), 1e-6);
      EXPECT_GE(rate.blocks, 2);
    }
    EXPECT_LT(machine.spent, 5.5);
    EXPECT_GT(machine.spent, 2.0);
  }
}

TEST(Trial, AlternatesAndShrugsOffADisturbance) {
  FakeMachine machine{{{{1, 1}, 0.007}, {{2, 1}, 0.006}, {{1, 2}, 0.0065}}, {}, 0, -1, {}};
  machine.disturbed = [](size_t block) { return block == 2 ? 1.5 : block == 7 ? 0.1 : 1.0; };
  const TrialResult result = machine.trial(100000);
  EXPECT_EQ(result.chosen, (Layout{2, 1})) << trial_table(result);
  // The first one tells how long a step takes; serial is then out, the other two are close.
  const std::vector<std::string> expected = {"1x1", "1x1", "2x1", "1x2", "1x1", "2x1", "1x2",
                                             "1x1", "2x1", "1x2", "2x1", "1x2", "2x1", "1x2"};
  EXPECT_EQ(machine.order, expected);
}

TEST(Trial, LeavesOutWhatIsClearlyBehind) {
  FakeMachine machine{{{{1, 1}, 0.01}, {{2, 1}, 0.006}, {{1, 2}, 0.3}}, {}, 0, -1, {}};
  const TrialResult result = machine.trial(100000);
  EXPECT_EQ(std::ranges::count(machine.order, "1x2"), 1);
  EXPECT_EQ(result.chosen, (Layout{2, 1}));
  EXPECT_EQ(result.rates.size(), 3u);  // it is in the table all the same
}

TEST(Trial, IsShortForAShortRun) {
  const std::map<std::pair<int64_t, int64_t>, double> seconds = {
      {{1, 1}, 0.01}, {{2, 1}, 0.006}, {{1, 2}, 0.008}};
  for (const int64_t steps : {300, 1000, 3000}) {
    FakeMachine machine{seconds, {}, 0, -1, {}};
    EXPECT_EQ(machine.trial(steps).chosen, (Layout{2, 1}));
    EXPECT_LT(machine.spent, 0.22 * static_cast<double>(steps) * 0.01) << steps;
  }
  for (const int64_t steps : {1, 10, 29, 40}) {
    FakeMachine machine{seconds, {}, 0, -1, {}};
    const TrialResult result = machine.trial(steps);
    EXPECT_EQ(result.chosen, (Layout{1, 1})) << steps;
    EXPECT_TRUE(result.rates.empty());
    EXPECT_NE(result.reason.find("too short"), std::string::npos) << result.reason;
    EXPECT_LE(machine.spent, 0.03 + 1e-9);
  }
}

TEST(Trial, SlowStepsGetMoreTime) {
  FakeMachine machine{{{{1, 1}, 0.5}, {{2, 1}, 0.40}, {{1, 2}, 0.42}}, {}, 0, -1, {}};
  // Every block of the faster one meets something that costs it a step's time now and then.
  machine.disturbed = [](size_t block) { return block % 4 == 2 ? 1.3 : 1.0; };
  const TrialResult result = machine.trial(100000);
  EXPECT_EQ(result.chosen, (Layout{2, 1})) << trial_table(result);
  EXPECT_EQ(result.rates[1].blocks, 5);
  EXPECT_LT(machine.spent, 60);
}

TEST(Trial, SlowStepsAreTriedTwiceEach) {
  FakeMachine machine{{{{1, 1}, 60}, {{2, 1}, 35}, {{1, 2}, 50}}, {}, 0, -1, {}};
  const TrialResult result = machine.trial(60);
  EXPECT_EQ(result.chosen, (Layout{2, 1})) << result.reason;
  EXPECT_EQ(machine.order, (std::vector<std::string>{"1x1", "2x1", "1x2"}));
  EXPECT_LT(machine.spent, 0.2 * 60 * 60);
}

TEST(Trial, EndsAtCtrlC) {
  for (int block = 0; block < 8; ++block) {
    FakeMachine machine{{{{1, 1}, 0.007}, {{2, 1}, 0.006}, {{1, 2}, 0.0065}}, {}, 0, block, {}};
    EXPECT_TRUE(machine.trial(100000).interrupted);
    EXPECT_EQ(machine.order.size(), static_cast<size_t>(block) + 1);
  }
}

TEST(Trial, TheTable) {
  TrialResult result;
  result.rates = {{{1, 1}, 1234.6, 3}, {{2, 1}, 2345.6, 3}, {{1, 2}, 999.2, 1}};
  result.chosen = {2, 1};
  EXPECT_EQ(trial_table(result),
            "auto: ranks x threads    samples/s  x serial\n"
            "          1 x 1              1,234      1.00\n"
            "          2 x 1              2,345      1.90  chosen\n"
            "          1 x 2                999      0.81");
}

class RealTrial : public testing::Test {
 protected:
  RealTrial() {
    write_flock(folder_ / "data", 1000);
    recipe_ = flock_recipe(folder_ / "data");
    recipe_.model.width = 8;
    recipe_.train.epochs.reset();
    recipe_.train.steps = 1000000;
  }
  TemporaryFolder folder_;
  Recipe recipe_;
};

TEST_F(RealTrial, MeasuresRealSteps) {
  for (const char* weights : {"shared", "replicated"}) {
    recipe_.parallel.weights = weights;
    recipe_.parallel.micro_batches = 2;
    const Workload work = prepare(recipe_);
    for (const int64_t ranks : {1, 2, 3}) {
      // 784 training rows: the twelfth step of an epoch has 64 samples, the thirteenth 16.
      const TrialBlock block = measure_block(work, {ranks, 1}, 1e9, 30);
      EXPECT_EQ(block.steps, 30);
      EXPECT_GT(block.seconds, 0);
      EXPECT_FALSE(block.interrupted);
      EXPECT_GT(block.samples, 28 * 64.0);
      EXPECT_LT(block.samples, 30 * 64.0);
    }
    EXPECT_EQ(measure_block(work, {1, 1}, 0, 100).steps, 2);
  }
}

TEST_F(RealTrial, ALargeLearningRateIsNotTheTrialsFault) {
  recipe_.train.optimizer = "sgd";
  recipe_.train.learning_rate = 1e6;
  const Workload work = prepare(recipe_);
  EXPECT_EQ(measure_block(work, {2, 1}, 1e9, 50).steps, 50);
}

TEST_F(RealTrial, TriesWhatFitsTheBatch) {
  recipe_.train.batch = 1;
  const Workload work = prepare(recipe_);
  Progress quiet(true);
  TrialLimits limits;
  limits.seconds = 0.05;
  ParallelRecipe asked;
  const TrialResult result = try_layouts(work, asked, 2, quiet, limits);
  ASSERT_EQ(result.rates.size(), 2u) << trial_table(result);  // not 2 ranks: one would have no sample
  EXPECT_EQ(result.rates[1].layout, (Layout{1, 2}));
  for (const LayoutRate& rate : result.rates) EXPECT_GT(rate.samples_per_s, 0);
  EXPECT_TRUE(try_layouts(work, asked, 1, quiet, limits).rates.empty());
  EXPECT_EQ(try_layouts(work, asked, 1, quiet, limits).reason, "one usable core");
}

}  // namespace
}  // namespace troika

#include "troika/train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/temporary_folder.h"
#include "train/support/flock.h"
#include "troika/comm/rank_group.h"
#include "troika/train/baseline.h"
#include "troika/train/scan_samples.h"

namespace troika {
namespace {

constexpr int64_t kRows = 1000;

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() {
    write_flock(folder_ / "data", kRows);
    recipe_.data.path = folder_ / "data";
    recipe_.data.features = {"x", "count", "flag", "kind"};
    recipe_.data.split = {"random", 0.3, 0.1};
    recipe_.model.width = 8;
    recipe_.train.epochs = 1;
    recipe_.parallel.threads_per_rank = 1;
  }

  Workload workload(const std::string& target, int ranks) {
    recipe_.data.targets = {target};
    recipe_.parallel.ranks = ranks;
    return prepare(recipe_);
  }

  struct Result {
    std::vector<std::vector<double>> numbers;  // of each rank
    std::vector<Metrics> metrics;
    std::vector<int64_t> progress;  // of rank 0
    int64_t total = 0;
  };

  Result evaluate(const Workload& work, const EvaluateOptions& options) {
    const Evaluator evaluator(work, work.split.validation, work.ranks(), options);
    Result result;
    result.numbers.resize(static_cast<size_t>(work.ranks()));
    result.metrics.resize(static_cast<size_t>(work.ranks()));
    run_thread_ranks(work.ranks(), {}, [&](Communicator& communicator) {
      Replica replica(communicator, work.layers, replica_options(work));
      const auto at = static_cast<size_t>(communicator.rank());
      const MetricSums sums = evaluator.evaluate(communicator, replica, 0, [&](int64_t done, int64_t total) {
        if (at != 0) return;
        result.progress.push_back(done);
        result.total = total;
      });
      result.numbers[at] = sums.numbers();
      result.metrics[at] = sums.metrics(work.features);
    });
    return result;
  }

  TemporaryFolder folder_;
  Recipe recipe_;
};

TEST_F(EvaluateTest, TheNumberOfRanksChangesNoBit) {
  for (const char* target : {"y", "good", "sort"}) {
    Result first;
    for (const int ranks : {1, 2, 3}) {
      const Workload work = workload(target, ranks);
      const Result now = evaluate(work, {.chunk = 64});
      if (ranks == 1) first = now;
      ASSERT_EQ(now.metrics[0].samples, work.split.validation.count());
      for (size_t rank = 0; rank < now.numbers.size(); ++rank) {
        EXPECT_EQ(now.numbers[rank], first.numbers[0]) << target << " " << ranks;
        EXPECT_EQ(now.metrics[rank].values, first.metrics[0].values) << target << " " << ranks;
      }
    }
  }
}

/// Every pair of samples looked at.
double naive_auc(const std::vector<double>& score, const std::vector<bool>& positive) {
  double won = 0, pairs = 0;
  for (size_t i = 0; i < score.size(); ++i) {
    for (size_t j = 0; j < score.size(); ++j) {
      if (!positive[i] || positive[j]) continue;
      ++pairs;
      won += score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0;
    }
  }
  return won / pairs;
}

TEST_F(EvaluateTest, MetricsAndAucAgainstTheWholePartAtOnce) {
  for (const char* target : {"good", "sort"}) {
    const Workload work = workload(target, 1);
    const Model model(work.layers, work.recipe.train.seed, work.dtype());
    std::vector<double> truth;
    std::vector<std::vector<double>> scores;
    int64_t right = 0;
    scan_rows(work.dataset, work.split.validation, [&](const RowBuffer& rows) {
      const at::Tensor out = model.forward(make_batch(work, rows).inputs).at(0).detach().to(at::kDouble);
      std::vector<double> targets(static_cast<size_t>(rows.rows));
      raw_targets(work.features, work.dataset, rows, targets.data());
      const at::Tensor probable = out.size(1) == 1 ? out : out.log_softmax(1);
      scores.resize(static_cast<size_t>(out.size(1)));
      for (int64_t row = 0; row < rows.rows; ++row) {
        const double answer = targets[static_cast<size_t>(row)];
        truth.push_back(answer);
        for (int64_t c = 0; c < out.size(1); ++c)
          scores[static_cast<size_t>(c)].push_back(static_cast<float>(probable[row][c].item<double>()));
        const double guess = out.size(1) == 1 ? out[row][0].item<double>() > 0
                                              : static_cast<double>(out[row].argmax().item<int64_t>());
        right += guess == answer ? 1 : 0;
      }
    });
    double auc = 0;
    for (size_t c = 0; c < scores.size(); ++c) {
      std::vector<bool> positive;
      for (const double answer : truth)
        positive.push_back(answer == (scores.size() == 1 ? 1 : static_cast<double>(c)));
      auc += naive_auc(scores[c], positive) / static_cast<double>(scores.size());
    }
    const Result found = evaluate(work, {.chunk = 50});
    EXPECT_NEAR(found.metrics[0]["auc"], auc, 1e-3) << target;
    EXPECT_EQ(found.metrics[0]["accuracy"], static_cast<double>(right) / static_cast<double>(truth.size()));
  }
}

TEST_F(EvaluateTest, WindowsOfSeveralStepsAhead) {
  recipe_.data.features = {"x", "count", "flag"};
  recipe_.data.time = "when";
  recipe_.data.window = 12;
  recipe_.data.horizon = 3;
  recipe_.data.split = {"time", 0.3, 0.1};
  recipe_.model.type = "gru";
  Result first;
  for (const int ranks : {1, 3}) {
    const Workload work = workload("y2", ranks);
    EXPECT_EQ(seconds_between_rows(work.dataset, work.features.windows, work.split), 3600);
    const Result now = evaluate(work, {.chunk = 16});
    if (ranks == 1) first = now;
    EXPECT_EQ(now.numbers[0], first.numbers[0]);
    // Against the model by itself, sample by sample.
    const Model model(work.layers, work.recipe.train.seed, work.dtype());
    std::vector<double> squares(3);
    scan_samples(work.dataset, work.split.validation, 15, [&](const RowBuffer& rows) {
      const at::Tensor out = model.forward(make_batch(work, rows).inputs).at(0).detach().to(at::kDouble);
      std::vector<double> targets(static_cast<size_t>(out.numel()));
      raw_targets(work.features, work.dataset, rows, targets.data());
      for (int64_t i = 0; i < out.size(0); ++i) {
        for (int64_t step = 0; step < 3; ++step) {
          const TargetColumn& target = work.features.targets[0];
          const double error = out[i][step].item<double>() * target.deviation + target.mean -
                               targets[static_cast<size_t>(3 * i + step)];
          squares[static_cast<size_t>(step)] += error * error;
        }
      }
    });
    const auto n = static_cast<double>(work.split.validation.count());
    EXPECT_EQ(now.metrics[0].samples, work.split.validation.count());
    for (size_t step = 0; step < 3; ++step) {
      const double rmse = *find_figure(now.metrics[0].per_horizon[step].values, "rmse");
      EXPECT_NEAR(rmse, std::sqrt(squares[step] / n), 1e-6 * rmse);
    }
  }
}

TEST_F(EvaluateTest, TellsHowFarItIs) {
  const Workload work = workload("y", 2);
  const int64_t rows = work.split.validation.count();
  const Result found = evaluate(work, {.chunk = 64});
  ASSERT_EQ(found.progress.size(), static_cast<size_t>((rows + 127) / 128));
  EXPECT_EQ(found.progress[0], 128);
  EXPECT_EQ(found.progress.back(), rows);
  EXPECT_EQ(found.total, rows);
}

TEST_F(EvaluateTest, TooManyScoresAreSaidAndNotKept) {
  const Workload work = workload("sort", 2);
  const int64_t rows = work.split.validation.count();
  const Metrics enough = evaluate(work, {.most_scores = 4 * rows, .chunk = 64}).metrics[0];
  EXPECT_FALSE(std::isnan(enough["auc"]));
  EXPECT_EQ(enough.note, "");
  const Metrics few = evaluate(work, {.most_scores = 4 * rows - 1, .chunk = 64}).metrics[0];
  EXPECT_TRUE(std::isnan(few["auc"]));
  EXPECT_EQ(few["accuracy"], enough["accuracy"]);
  EXPECT_NE(few.note.find("no auc: it would need"), std::string::npos) << few.note;
}

TEST_F(EvaluateTest, ChunksAreSizedByWhatTheyHold) {
  Workload work = workload("y", 1);
  EXPECT_EQ(chunk_samples(work), 4096);
  work.recipe.model.width = 4096;
  EXPECT_EQ(chunk_samples(work), 512);  // 8 x 4096 floats a row, and a little, in 128 MiB: below 1024
  work.features.windows.window = 64;
  EXPECT_EQ(chunk_samples(work), 8);
  work.features.windows.window = 1 << 20;
  EXPECT_EQ(chunk_samples(work), 1);
}

}  // namespace
}  // namespace troika

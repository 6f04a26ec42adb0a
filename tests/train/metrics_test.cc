#include "troika/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "troika/base/random.h"
#include "troika/train/auc.h"

namespace troika {
namespace {

FeaturePlan numbers(int targets, int64_t window = 0, int64_t horizon = 1) {
  FeaturePlan plan;
  for (int t = 0; t < targets; ++t)
    plan.targets.push_back(
        {std::string(1, static_cast<char>('a' + t)), Storage::floats, t, 10.0 + t, 2.0 + t, {}});
  plan.windows.window = window;
  plan.windows.horizon = horizon;
  return plan;
}

FeaturePlan classes(std::vector<std::string> names) {
  FeaturePlan plan;
  plan.kind = names.size() == 2 ? TargetKind::binary : TargetKind::classes;
  plan.targets.push_back({"sort", Storage::floats, 0, 0, 1, std::move(names)});
  return plan;
}

Metrics of_classes(const FeaturePlan& plan, const std::vector<double>& predicted,
                   const std::vector<double>& truth) {
  MetricSums sums(plan);
  sums.add_plain(plan, static_cast<int64_t>(truth.size()), predicted.data(), truth.data());
  return sums.metrics(plan, false);
}

TEST(Metrics, OfNumbersInTheirOwnUnit) {
  const FeaturePlan plan = numbers(1);  // mean 10, deviation 2
  const std::vector<double> outputs = {0, 1, -1}, targets = {11, 12, 6};
  MetricSums sums(plan);
  sums.add(plan, 3, 1, outputs.data(), targets.data(), 6);
  const Metrics metrics = sums.metrics(plan);  // errors -1, 0, 2
  EXPECT_NEAR(metrics["rmse"], 1.2909944487358056, 1e-15);
  EXPECT_NEAR(metrics["mae"], 1, 1e-15);
  EXPECT_NEAR(metrics["r2"], 0.7580645161290323, 1e-15);
  EXPECT_EQ(metrics.samples, 3);
  EXPECT_EQ(sums.mean_loss(), 2);
  EXPECT_EQ(to_string(metrics), "rmse 1.291  mae 1  r2 0.7581");
  EXPECT_EQ(to_json(metrics).dump(),
            R"({"samples":3,"rmse":1.2909944487358056,"mae":1.0,"r2":0.7580645161290323})");
}

TEST(Metrics, AConstantTargetHasNoR2AndItIsNull) {
  const FeaturePlan plan = numbers(1);
  const std::vector<double> predictions = {4, 6}, targets = {5, 5};
  MetricSums sums(plan);
  sums.add_plain(plan, 2, predictions.data(), targets.data());
  EXPECT_TRUE(std::isnan(sums.metrics(plan)["r2"]));
  EXPECT_EQ(to_json(sums.metrics(plan)).dump(), R"({"samples":2,"rmse":1.0,"mae":1.0,"r2":null})");
  EXPECT_EQ(to_string(sums.metrics(plan)), "rmse 1  mae 1");
  MetricSums rounded(plan);  // the squares of y - 10 don't add up exactly
  for (int i = 0; i < 1000; ++i)
    rounded.add_plain(plan, 1, predictions.data(), std::vector<double>{10.1}.data());
  EXPECT_TRUE(std::isnan(rounded.metrics(plan)["r2"])) << rounded.metrics(plan)["r2"];
  const MetricSums none(plan);
  EXPECT_EQ(to_json(none.metrics(plan)).dump(), R"({"samples":0,"rmse":null,"mae":null,"r2":null})");
}

TEST(Metrics, PerStepAheadAndTargetAgainstALoop) {
  constexpr int64_t kTargets = 2, kSteps = 5, kRows = 37, kWidth = kTargets * kSteps;
  const FeaturePlan plan = numbers(kTargets, 8, kSteps);
  std::vector<double> outputs(kRows * kWidth), targets(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = uniform(1, i) - 0.5;
    targets[i] = 20 * uniform(2, i);
  }
  MetricSums sums(plan), second(plan);  // in two parts
  sums.add(plan, 20, kWidth, outputs.data(), targets.data(), 1);
  second.add(plan, 17, kWidth, outputs.data() + 20 * kWidth, targets.data() + 20 * kWidth, 1);
  sums += second;
  const Metrics metrics = sums.metrics(plan);
  ASSERT_EQ(metrics.per_horizon.size(), 5U);
  for (int64_t t = 0; t < kTargets; ++t) {
    const std::string name(1, static_cast<char>('a' + t));
    double all_squares = 0, all_absolute = 0, sum = 0;
    std::vector<double> values;
    for (int64_t step = 0; step < kSteps; ++step) {
      double squares = 0, absolute = 0;
      for (int64_t row = 0; row < kRows; ++row) {
        const auto at = static_cast<size_t>(row * kWidth + step * kTargets + t);
        const double error =
            outputs[at] * (2.0 + static_cast<double>(t)) + 10.0 + static_cast<double>(t) - targets[at];
        squares += error * error;
        absolute += std::abs(error);
        sum += targets[at];
        values.push_back(targets[at]);
      }
      const StepErrors& errors = metrics.per_horizon[static_cast<size_t>(step)];
      EXPECT_EQ(errors.step, step + 1);
      EXPECT_NEAR(*find_figure(errors.values, name + ".rmse"), std::sqrt(squares / kRows), 1e-12);
      EXPECT_NEAR(*find_figure(errors.values, name + ".mae"), absolute / kRows, 1e-12);
      all_squares += squares;
      all_absolute += absolute;
    }
    double spread = 0;
    for (const double y : values) spread += (y - sum / (kRows * kSteps)) * (y - sum / (kRows * kSteps));
    EXPECT_NEAR(metrics[name + ".rmse"], std::sqrt(all_squares / (kRows * kSteps)), 1e-12);
    EXPECT_NEAR(metrics[name + ".mae"], all_absolute / (kRows * kSteps), 1e-12);
    EXPECT_NEAR(metrics[name + ".r2"], 1 - all_squares / spread, 1e-9);
  }
  const nlohmann::json json = nlohmann::json::parse(to_json(metrics).dump());
  EXPECT_EQ(json["per_horizon"].size(), 5U);
  EXPECT_EQ(json["per_horizon"][2]["step"], 3);
  EXPECT_EQ(json["per_horizon"][2]["b.mae"], *find_figure(metrics.per_horizon[2].values, "b.mae"));
}

TEST(Metrics, OneStepAheadNeedsNoTableOfSteps) {
  EXPECT_TRUE(MetricSums(numbers(1, 8, 1)).metrics(numbers(1, 8, 1)).per_horizon.empty());
  EXPECT_TRUE(MetricSums(numbers(1, 8, 0)).metrics(numbers(1, 8, 0)).per_horizon.empty());
}

TEST(Metrics, F1OfTheSecondOfTwoClasses) {
  const FeaturePlan plan = classes({"false", "true"});
  // 3 right, 1 missed, 2 false alarms: 2 x 3 / (2 x 3 + 1 + 2).
  const Metrics metrics = of_classes(plan, {1, 1, 1, 0, 1, 1, 0, 0}, {1, 1, 1, 1, 0, 0, 0, 0});
  EXPECT_NEAR(metrics["f1"], 2.0 / 3, 1e-15);
  EXPECT_NEAR(metrics["accuracy"], 5.0 / 8, 1e-15);
  EXPECT_EQ(of_classes(plan, {0, 1}, {0, 0})["f1"], 0);
  EXPECT_TRUE(std::isnan(of_classes(plan, {0, 0}, {0, 0})["f1"]));
}

TEST(Metrics, F1OfSeveralClassesIsTheMeanOverThoseThatOccur) {
  const FeaturePlan plan = classes({"a", "b", "c", "d"});
  // a: 2 right, 0 missed, 1 alarm -> 4/5. b: 1 right, 2 missed, 0 alarms -> 1/2. c: 0 right, 1 missed -> 0.
  // d never occurs but is predicted twice.
  const Metrics metrics = of_classes(plan, {0, 0, 1, 0, 3, 3}, {0, 0, 1, 1, 1, 2});
  EXPECT_NEAR(metrics["f1"], (0.8 + 0.5 + 0) / 3, 1e-15);
  EXPECT_NEAR(metrics["accuracy"], 0.5, 1e-15);
}

TEST(Metrics, WeightsEnterTheLossAlone) {
  const FeaturePlan plan = classes({"no", "yes"});
  const std::vector<double> logits = {2, -1}, targets = {1, 1};
  MetricSums plain(plan), weighted(plan);
  plain.add(plan, 2, 1, logits.data(), targets.data(), 3);
  weighted.add(plan, 2, 1, logits.data(), targets.data(), 3, 12);
  EXPECT_EQ(plain.mean_loss(), 1.5);
  EXPECT_EQ(weighted.mean_loss(), 0.25);
  EXPECT_EQ(to_json(plain.metrics(plan)), to_json(weighted.metrics(plan)));
  EXPECT_NEAR(plain.metrics(plan)["log_loss"], (std::log1p(std::exp(-2.0)) + std::log1p(std::exp(1.0))) / 2,
              1e-15);
}

TEST(Metrics, AnAucIsSetOrMissingWithAReason) {
  const FeaturePlan plan = classes({"no", "yes"});
  const std::vector<double> logit = {1}, target = {1};
  MetricSums sums(plan);
  sums.add(plan, 1, 1, logit.data(), target.data(), 0);
  EXPECT_FALSE(find_figure(sums.metrics(plan).values, "auc"));
  sums.leave_out_auc("too much");
  EXPECT_NE(to_json(sums.metrics(plan)).dump().find(R"("auc":null,"note":"too much")"), std::string::npos);
  MetricSums other(plan);
  other.set_auc(0.75);
  EXPECT_EQ(other.metrics(plan)["auc"], 0.75);
  EXPECT_FALSE(to_json(other.metrics(plan)).contains("note"));
}

/// Every pair looked at.
double naive_area(const std::vector<float>& scores, const std::vector<bool>& positive) {
  double won = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (!positive[i] || positive[j]) continue;
      ++pairs;
      won += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return won / pairs;
}

TEST(Auc, ByHand) {
  EXPECT_EQ(area_under_curve({2, 3}, {0, 1}), 1);
  EXPECT_EQ(area_under_curve({0}, {1, 2}), 0);
  EXPECT_EQ(area_under_curve({1, 1}, {1, 1, 1}), 0.5);
  EXPECT_EQ(area_under_curve({0.8F, 0.4F}, {0.5F, 0.4F, 0.1F}), 4.5 / 6);
  EXPECT_EQ(area_under_curve({-0.0F}, {0.0F}), 0.5);
  EXPECT_TRUE(std::isnan(area_under_curve({}, {1})));
  EXPECT_TRUE(std::isnan(area_under_curve({1}, {})));
  EXPECT_TRUE(std::isnan(area_under_curve({1, std::numeric_limits<float>::quiet_NaN()}, {0})));
}

TEST(Auc, AgreesWithEveryPairOnScoresWithTies) {
  for (const uint64_t levels : {2, 7, 1000000}) {
    for (const size_t n : {2, 3, 50, 400}) {
      std::vector<float> scores, positives, negatives;
      std::vector<bool> positive;
      for (size_t i = 0; i < n; ++i) {
        scores.push_back(
            static_cast<float>(std::floor(static_cast<double>(levels) * uniform(levels + n, i)) - 1));
        positive.push_back(i == 0 || (i > 1 && uniform(levels * 31 + n, i) < 0.3));
        (positive.back() ? positives : negatives).push_back(scores.back());
      }
      // Both count in halves, which are exact.
      EXPECT_EQ(area_under_curve(positives, negatives), naive_area(scores, positive)) << levels << " " << n;
    }
  }
}

TEST(Auc, OneAgainstTheRestByProbabilityAndTheMeanOverClassesThatOccur) {
  const FeaturePlan plan = classes({"a", "b", "c", "never"});
  constexpr int64_t kRows = 90, kClasses = 4, kColumns = kClasses + 1;
  std::vector<double> logits(kRows * kClasses), targets;
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::floor(6 * uniform(5, i));
  for (int64_t row = 0; row < kRows; ++row) targets.push_back(static_cast<double>(row % 3));
  std::vector<float> records(kRows * kColumns);
  ASSERT_EQ(score_columns(plan), kClasses);
  write_scores(plan, kRows, kClasses, logits.data(), targets.data(), records.data());
  double mean = 0;
  for (size_t c = 0; c < 3; ++c) {
    std::vector<float> scores;
    std::vector<bool> positive;
    for (size_t row = 0; row < kRows; ++row) {
      const double* const l = &logits[row * kClasses];
      double sum = 0;
      for (size_t k = 0; k < kClasses; ++k) sum += std::exp(l[k]);
      scores.push_back(static_cast<float>(l[c] - std::log(sum)));
      EXPECT_NEAR(records[row * kColumns + 1 + c], scores.back(), 1e-6);
      scores.back() = records[row * kColumns + 1 + c];
      positive.push_back(targets[row] == static_cast<double>(c));
    }
    mean += naive_area(scores, positive) / 3;
  }
  for (const int64_t parts : {1, 2, 3, 7}) {
    std::vector<double> areas(2 * kClasses);
    for (int64_t part = 0; part < parts; ++part) {
      ScoreRanking ranking(kClasses, part, parts);
      ranking.reserve(kRows);
      ranking.add({records.data(), 40 * kColumns});
      ranking.add({records.data() + 40 * kColumns, 50 * kColumns});
      const std::vector<double> own = ranking.areas();
      for (size_t i = 0; i < areas.size(); ++i) areas[i] += own[i];
    }
    EXPECT_NEAR(ScoreRanking::mean(areas), mean, 1e-15) << parts;
  }
}

TEST(Auc, TwoClassesHaveOneScoreOfOneOrTwoLogits) {
  const FeaturePlan plan = classes({"no", "yes"});
  ASSERT_EQ(score_columns(plan), 1);
  const std::vector<double> one = {0.25, -1}, two = {1, 1.25, 0.5, -0.5}, targets = {1, 0};
  std::vector<float> records(4);
  write_scores(plan, 2, 1, one.data(), targets.data(), records.data());
  EXPECT_EQ(records, (std::vector<float>{1, 0.25F, 0, -1}));
  std::vector<float> again(4);
  write_scores(plan, 2, 2, two.data(), targets.data(), again.data());
  EXPECT_EQ(again, records);
  ScoreRanking ranking(1, 0, 1);
  ranking.add(records);
  EXPECT_EQ(ScoreRanking::mean(ranking.areas()), 1);
  EXPECT_EQ(score_columns(numbers(1)), 0);
}

TEST(Auc, OneClassAloneHasNone) {
  ScoreRanking ranking(1, 0, 1);
  const std::vector<float> records = {1, 0.5F, 1, 0.25F};
  ranking.add(records);
  EXPECT_EQ(ranking.areas(), (std::vector<double>{0, 0}));
  EXPECT_TRUE(std::isnan(ScoreRanking::mean(ranking.areas())));
}

}  // namespace
}  // namespace troika

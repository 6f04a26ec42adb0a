#include "troika/train/report_metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "troika/train/trainer.h"

namespace troika {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

Metrics errors(int64_t samples, double rmse, double mae, double r2) {
  Metrics metrics;
  metrics.samples = samples;
  metrics.values = {{"rmse", rmse}, {"mae", mae}, {"r2", r2}};
  return metrics;
}

TEST(MetricsText, TheModelBesideTheBaselines) {
  MetricsReport report;
  report.validation = errors(1204, 2.5, 1.25, 0.9);
  report.test = errors(1000, 3.5, 2, kNone);
  report.baselines = {
      {"mean", "mean of the training rows", errors(1204, 9, 8, -0.01), errors(1000, 9.5, 8, -0.02)},
      {"persistence", "last known value", errors(1204, 3, 2, 0.8), errors(990, 3.25, 2, 0.7)}};
  report.baselines[1].test->left_out = 10;
  EXPECT_EQ(
      metrics_text(report),
      "                                 rmse        mae         r2     samples\n"
      "  validation\n"
      "    model                         2.5       1.25        0.9       1,204\n"
      "    mean                            9          8      -0.01       1,204\n"
      "    persistence                     3          2        0.8       1,204\n"
      "  test\n"
      "    model                         3.5          2          -       1,000\n"
      "    mean                          9.5          8      -0.02       1,000\n"
      "    persistence                  3.25          2        0.7         990  (10 left out: null there)\n"
      "  the model is WORSE than the baseline \"persistence\" on the test rows: rmse 3.5 against 3.25\n"
      "  baselines: mean = mean of the training rows; persistence = last known value\n");
}

TEST(MetricsText, SomeOfManyStepsAhead) {
  Metrics model = errors(10, 1, 1, 0.5), last = errors(10, 2, 2, 0.4);
  for (int64_t step = 1; step <= 24; ++step) {
    const auto x = static_cast<double>(step);
    model.per_horizon.push_back({step, {{"rmse", x / 10}, {"mae", x / 20}}});
    last.per_horizon.push_back({step, {{"rmse", x}, {"mae", x}}});
  }
  MetricsReport report{{}, model, {{"persistence", "last known value", {}, last}}, 3600};
  const std::string text = metrics_text(report);
  EXPECT_NE(text.find("  test, ahead                    +1 h       +6 h      +12 h      +18 h      +24 h\n"
                      "    model, mae                   0.05        0.3        0.6        0.9        1.2\n"
                      "    model, rmse                   0.1        0.6        1.2        1.8        2.4\n"
                      "    persistence, rmse               1          6         12         18         24\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("WORSE"), std::string::npos);
  report.seconds_between_rows = 0;
  EXPECT_NE(metrics_text(report).find("step 1     step 6    step 12"), std::string::npos);
}

TEST(MetricsText, ClassesHaveTheirOwnColumnsAndTheirOwnRank) {
  Metrics model, majority;
  model.samples = majority.samples = 50;
  model.values = {{"accuracy", 0.6}, {"log_loss", 0.9}, {"f1", 0.5}, {"auc", kNone}};
  model.note = "no auc: too much";
  majority.values = {{"accuracy", 0.7}, {"f1", 0.4}};
  const MetricsReport report{model, {}, {{"majority", "most frequent class", majority, {}}}, 0};
  EXPECT_EQ(
      metrics_text(report),
      "                             accuracy   log_loss         f1        auc     samples\n"
      "  validation\n"
      "    model                         0.6        0.9        0.5          -          50\n"
      "    majority                      0.7          -        0.4          -          50\n"
      "  no auc: too much\n"
      "  the model is WORSE than the baseline \"majority\" on the validation rows: accuracy 0.6 against 0.7\n"
      "  baselines: majority = most frequent class\n");
}

TEST(MetricsText, ATargetAfterTheOther) {
  Metrics model, mean;
  model.samples = mean.samples = 4;
  model.values = {{"a.rmse", 1}, {"a.mae", 1}, {"a.r2", 0}, {"b.c.rmse", 5}, {"b.c.mae", 4}, {"b.c.r2", 0}};
  mean.values = {{"a.rmse", 2}, {"a.mae", 2}, {"a.r2", 0}, {"b.c.rmse", 3}, {"b.c.mae", 2}, {"b.c.r2", 0}};
  const MetricsReport report{model, {}, {{"mean", "the mean", mean, {}}}, 0};
  EXPECT_EQ(metrics_text(report),
            "                                 rmse        mae         r2     samples\n"
            "  validation, a\n"
            "    model                           1          1          0           4\n"
            "    mean                            2          2          0           4\n"
            "  validation, b.c\n"
            "    model                           5          4          0           4\n"
            "    mean                            3          2          0           4\n"
            "  the model is WORSE than the baseline \"mean\" on the validation rows: b.c.rmse 5 against 3\n"
            "  baselines: mean = the mean\n");
}

TEST(MetricsText, AModelWhoseErrorIsNoNumberIsWorse) {
  const MetricsReport report{errors(1, kNone, kNone, kNone), {}, {{"mean", "x", errors(1, 2, 2, 0), {}}}, 0};
  EXPECT_NE(metrics_text(report).find("rmse nan against 2"), std::string::npos);
  EXPECT_EQ(metrics_text({}), "");
}

TEST(ReportJson, TheStrongestBaselineAndAll) {
  TrainReport report;
  report.validation = errors(8, 1, 1, kNone);
  report.baselines = {{"mean", "the mean", errors(8, 2, 2, 0), errors(9, 5, 5, 0)},
                      {"persistence", "the last", errors(8, 7, 7, 0), errors(9, 3, 3, 0)}};
  const nlohmann::json metrics = nlohmann::json::parse(report_json(report))["metrics"];
  EXPECT_EQ(metrics["validation"]["rmse"], 1);
  EXPECT_TRUE(metrics["validation"]["r2"].is_null());
  EXPECT_TRUE(metrics["test"].is_null());
  EXPECT_EQ(metrics["baseline"]["name"], "persistence");
  EXPECT_EQ(metrics["baseline"]["predicts"], "the last");
  EXPECT_EQ(metrics["baseline"]["rmse"], 3) << "of the test rows";
  ASSERT_EQ(metrics["baselines"].size(), 2U);
  EXPECT_EQ(metrics["baselines"][0]["name"], "mean");
  EXPECT_EQ(metrics["baselines"][0]["validation"]["rmse"], 2);
  EXPECT_EQ(metrics["baselines"][1]["test"]["samples"], 9);
  report.baselines.clear();
  EXPECT_TRUE(nlohmann::json::parse(report_json(report))["metrics"]["baseline"].is_null());
}

TEST(StepLabel, InTheLargestUnitThatIsWhole) {
  EXPECT_EQ(step_label(6, 3600), "+6 h");
  EXPECT_EQ(step_label(48, 3600), "+48 h");
  EXPECT_EQ(step_label(72, 3600), "+3 d");
  EXPECT_EQ(step_label(73, 3600), "+73 h");
  EXPECT_EQ(step_label(3, 900), "+45 min");
  EXPECT_EQ(step_label(4, 900), "+1 h");
  EXPECT_EQ(step_label(1, 0.5), "+0.5 s");
  EXPECT_EQ(step_label(7, 0), "step 7");
}

}  // namespace
}  // namespace troika

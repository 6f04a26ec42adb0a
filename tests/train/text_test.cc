// A text as samples: what a window sees and predicts, where parts end, and what is measured.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "train/support/flock_recipe.h"
#include "train/support/text_run.h"
#include "troika/train/baseline.h"
#include "troika/train/metrics.h"
#include "troika/train/scan_samples.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

constexpr int64_t kWindow = 8;

class TextTest : public testing::Test {
 protected:
  void pack(std::vector<std::string> texts) {
    pack_texts(folder_.path(), texts);
    whole_.clear();
    for (const std::string& text : texts) whole_ += text;
  }

  /// The byte in a row of the dataset.
  int64_t byte(int64_t row) const { return static_cast<unsigned char>(whole_[static_cast<size_t>(row)]); }

  TemporaryFolder folder_;
  std::string whole_;
};

TEST_F(TextTest, EachByteOfAPartIsPredictedOnceFromThoseBeforeIt) {
  const std::vector<std::string> texts = {some_text(3'000), some_text(1'111, 2)};
  pack(texts);
  const Workload work = prepare(text_recipe(folder_.path()));
  EXPECT_EQ(work.features.windows.series, std::vector<std::string>{"file"});
  EXPECT_EQ(work.features.kind, TargetKind::tokens);
  std::map<int64_t, int> times;  // that a row is predicted
  int64_t samples = 0;
  for (const RowSet* part : {&work.split.train, &work.split.validation, &work.split.test}) {
    std::vector<int64_t> starts;
    for (int64_t row = 0; row < part->universe(); ++row)
      if (part->contains(row)) starts.push_back(row);
    size_t at = 0;
    scan_samples(work.dataset, *part, kWindow + 1, [&](const RowBuffer& rows) {
      const Batch batch = make_batch(work, rows);
      ASSERT_EQ(batch.inputs[1].sizes(), (at::IntArrayRef{batch.samples, kWindow, 1}));
      ASSERT_EQ(batch.target.sizes(), (at::IntArrayRef{batch.samples, kWindow}));
      for (int64_t i = 0; i < batch.samples; ++i, ++at) {
        for (int64_t t = 0; t < kWindow; ++t) {
          ASSERT_EQ(batch.inputs[1][i][t][0].item<int64_t>(), byte(starts[at] + t) + 1);
          ASSERT_EQ(batch.target[i][t].item<int64_t>(), byte(starts[at] + t + 1));
          ++times[starts[at] + t + 1];
        }
      }
      samples += batch.samples;
    });
    EXPECT_EQ(at, starts.size());
  }
  // Windows begin every 8 rows of a file. One reaches over each cut, and the last bytes of a file fill none.
  int64_t expected = 0;
  for (int64_t begin = 0; const std::string& text : texts) {
    const auto size = static_cast<int64_t>(text.size());
    const auto cut = [&](double share) { return std::llround(share * static_cast<double>(size)); };
    const int64_t test = size - cut(0.1), validation = test - cut(0.1);
    for (int64_t start = 0; start + kWindow < size; start += kWindow) {
      const auto crosses = [&](int64_t at) { return start < at && at < start + kWindow + 1; };
      if (crosses(validation) || crosses(test)) continue;
      ++expected;
      for (int64_t t = 1; t <= kWindow; ++t) EXPECT_EQ(times[begin + start + t], 1) << begin + start + t;
    }
    begin += size;
  }
  EXPECT_EQ(samples, expected);
  EXPECT_EQ(times.size(), static_cast<size_t>(expected * kWindow));
}

TEST_F(TextTest, ThePlanIsReadBackAsItWas) {
  pack({some_text(500)});
  const Workload work = prepare(text_recipe(folder_.path()));
  EXPECT_TRUE(work.features.windows.series.empty());
  FeaturePlan back = feature_plan_from_json(to_json(work.features));
  EXPECT_EQ(back.kind, TargetKind::tokens);
  bind_features(back, work.dataset);
  EXPECT_EQ(back, work.features);
}

TEST(TokenLoss, IsTheSumOverTokensWithTheirNumberAsWeight) {
  const at::Tensor logits = at::sin(at::arange(2 * 3 * 5, at::kDouble)).view({2, 3, 5});
  const at::Tensor target = at::tensor({0, 4, 2, 1, 1, 3}, at::kLong).view({2, 3});
  Batch batch{{}, target, 2};
  const LossValue value = make_loss(LossKind::cross_entropy)({logits}, batch);
  double expected = 0;
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t t = 0; t < 3; ++t) {
      const at::Tensor row = logits[i][t];
      expected += std::log(row.exp().sum().item<double>()) - row[target[i][t].item<int64_t>()].item<double>();
    }
  }
  EXPECT_NEAR(value.sum.item<double>(), expected, 1e-12);
  EXPECT_EQ(value.weight, 6);
}

TEST_F(TextTest, MetricsCountBytesInBits) {
  pack({some_text(500)});
  const FeaturePlan plan = prepare(text_recipe(folder_.path())).features;
  constexpr int64_t kBytes = 2 * kWindow;
  std::vector<double> logits(kBytes * 256), targets(kBytes);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<double>(i));
  double nats = 0, right = 0;
  for (size_t i = 0; i < kBytes; ++i) {
    const double* const row = &logits[i * 256];
    const auto most = std::max_element(row, row + 256) - row;
    targets[i] = static_cast<double>(i % 3 == 0 ? most : 7);
    double sum = 0;
    for (int c = 0; c < 256; ++c) sum += std::exp(row[c]);
    nats += std::log(sum) - row[static_cast<size_t>(targets[i])];
    right += most == static_cast<int64_t>(targets[i]) ? 1 : 0;
  }
  MetricSums sums(plan);
  sums.add(plan, plan.counted(2), 256, logits.data(), targets.data(), nats, kBytes);
  const Metrics metrics = sums.metrics(plan);
  EXPECT_EQ(metrics.samples, kBytes);
  EXPECT_NEAR(metrics["log_loss"], nats / kBytes, 1e-12);
  EXPECT_NEAR(metrics["bits_per_byte"], nats / kBytes / std::log(2), 1e-12);
  EXPECT_EQ(metrics["accuracy"], right / kBytes);
  EXPECT_EQ(metrics.values.size(), 3u);
  EXPECT_NEAR(sums.mean_loss(), metrics["log_loss"], 1e-12);
}

TEST_F(TextTest, TheBaselineIsTheBytesShares) {
  pack({some_text(2'000)});
  const Workload work = prepare(text_recipe(folder_.path()));
  const std::vector<Baseline> baselines = measure_baselines(work.features, work.dataset, work.split, {});
  ASSERT_EQ(baselines.size(), 1u);
  EXPECT_EQ(baselines[0].name, "majority");
  EXPECT_EQ(baselines[0].what, "most frequent byte of the training rows, \" \"");
  std::vector<double> counts(256, 1);
  const RowSet train = covered_rows(work.split.train, kWindow + 1);
  const RowSet test = covered_rows(work.split.test, kWindow + 1);
  double all = 256, bits = 0, spaces = 0, bytes = 0;
  for (int64_t row = 0; row < train.universe(); ++row) {
    if (!train.contains(row)) continue;
    ++counts[static_cast<size_t>(byte(row))];
    ++all;
  }
  for (int64_t row = 1; row < test.universe(); ++row) {
    if (!test.contains(row) || !test.contains(row - 1))
      continue;  // the first one of the part is not predicted
    bits -= std::log2(counts[static_cast<size_t>(byte(row))] / all);
    spaces += byte(row) == ' ' ? 1 : 0;
    ++bytes;
  }
  const Metrics& metrics = *baselines[0].test;
  EXPECT_EQ(metrics.samples, bytes);
  EXPECT_NEAR(metrics["bits_per_byte"], bits / bytes, 1e-9);
  EXPECT_NEAR(metrics["accuracy"], spaces / bytes, 1e-12);
  EXPECT_NE(to_beat(baselines).find("bits_per_byte"), std::string::npos);
  EXPECT_EQ(error_of(metrics), metrics["bits_per_byte"]);
}

TEST_F(TextTest, AModelThatDoesNotFitTheDataSaysWhatWould) {
  write_flock(folder_ / "data", 100);
  Recipe table = text_recipe(folder_.path());
  table.data.path = folder_ / "data";
  EXPECT_SAYS(error_of([&] { prepare(table); }), "pack a text with `troika pack --text FILE... -o DATASET`");
  pack({some_text(500)});
  Recipe mlp = flock_recipe(folder_ / "text");
  EXPECT_SAYS(error_of([&] { prepare(mlp); }),
              "is a text, and model.type = \"mlp\" reads tables: set model.type = \"gpt\" and data.window");
  Recipe series = text_recipe(folder_.path());
  series.data.series = {"file"};
  EXPECT_SAYS(error_of([&] { prepare(series); }), "is the text of one file, so there is one series");
  Recipe narrow = text_recipe(folder_.path());
  narrow.model.heads = 3;
  EXPECT_SAYS(error_of([&] { prepare(narrow); }), "can't be shared out among 3 heads");
}

}  // namespace
}  // namespace troika

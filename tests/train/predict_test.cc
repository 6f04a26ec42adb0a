// Predictions: the numbers of a forward pass, on the right rows.
#include "troika/train/predict.h"

#include <cmath>
#include <fstream>
#include <map>

#include "train/support/naive_models.h"
#include "train/support/predict_run.h"
#include "troika/data/source.h"
#include "troika/train/predict_model.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

using test::Cells;
using test::kRows;

class PredictTest : public test::PredictRun {};

/// What the naive model says of the sample whose `window` rows start at `first`.
test::Row by_hand(const PredictModel& run, const Dataset& dataset, int64_t first) {
  const int64_t window = std::max<int64_t>(1, run.plan.windows.window);
  RowSet starts(dataset.rows);
  for (int64_t row = first; row < first + window; ++row) starts.set(row, true);
  RowBuffer buffer;
  scan_rows(dataset, starts, [&](const RowBuffer& rows) { buffer = rows; });
  std::vector<float> floats(run.plan.floats.size() * static_cast<size_t>(window));
  std::vector<int64_t> codes(run.plan.categories.size() * static_cast<size_t>(window));
  encode_inputs(run.plan, dataset, buffer, floats.data(), codes.data(), window);
  test::Rows x;
  std::vector<std::vector<int64_t>> c;
  for (int64_t t = 0; t < window; ++t) {
    const auto f = static_cast<ptrdiff_t>(run.plan.floats.size());
    const auto k = static_cast<ptrdiff_t>(run.plan.categories.size());
    x.emplace_back(floats.begin() + t * f, floats.begin() + (t + 1) * f);
    c.emplace_back(codes.begin() + t * k, codes.begin() + (t + 1) * k);
  }
  const LossKind loss = choose_loss(run.recipe.train.loss, run.plan, dataset);
  return test::NaiveModel(*run.model, run.recipe.model, model_shape(run.plan, loss))(x, c);
}

TEST_F(PredictTest, NumbersAreAForwardPassByHandInTheirOwnUnit) {
  recipe_.data.targets = {"y", "y2"};
  recipe_.train.precision = "float64";
  train_it();
  const Cells cells = predict_it();
  const Dataset dataset = open_dataset(folder_ / "data");
  const PredictModel run = open_run(options_.run_dir, dataset);
  EXPECT_EQ(cells[0], (std::vector<std::string>{"row", "y", "y2"}));
  ASSERT_EQ(cells.size(), kRows + 1u);  // rows without a target too
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<std::string>& line = cells[static_cast<size_t>(row) + 1];
    EXPECT_EQ(line[0], std::to_string(row));
    const test::Row expected = by_hand(run, dataset, row);
    for (size_t i = 0; i < 2; ++i) {
      const TargetColumn& target = run.plan.targets[i];
      EXPECT_NEAR(std::stod(line[i + 1]), expected[i] * target.deviation + target.mean,
                  1e-7 * (target.deviation + std::abs(target.mean)));
    }
  }
}

// Column big is a million million and some: with eight digits all predictions would look the same.
TEST_F(PredictTest, AMeanFarLargerThanTheDeviationHidesNothing) {
  recipe_.data.targets = {"big"};
  recipe_.train.precision = "float64";
  recipe_.train.epochs = 2;
  train_it();
  const Cells cells = predict_it();
  const Dataset dataset = open_dataset(folder_ / "data");
  const PredictModel run = open_run(options_.run_dir, dataset);
  const TargetColumn& target = run.plan.targets[0];
  for (int64_t row = 0; row < kRows; row += 17) {
    const double standardised = by_hand(run, dataset, row)[0];
    const double said = std::stod(cells[static_cast<size_t>(row) + 1][1]);
    EXPECT_NEAR((said - target.mean) / target.deviation, standardised, 1e-5);
  }
}

TEST_F(PredictTest, TwoClassesComeFromOneLogit) {
  recipe_.data.targets = {"good"};
  train_it();
  const Cells cells = predict_it();
  const Dataset dataset = open_dataset(folder_ / "data");
  const PredictModel run = open_run(options_.run_dir, dataset);
  EXPECT_EQ(cells[0], (std::vector<std::string>{"row", "good", "good.p.false", "good.p.true"}));
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<std::string>& line = cells[static_cast<size_t>(row) + 1];
    const test::Row logit = by_hand(run, dataset, row);
    ASSERT_EQ(logit.size(), 1u);
    const double second = 1 / (1 + std::exp(-logit[0]));
    EXPECT_NEAR(std::stod(line[2]), 1 - second, 1e-5);
    EXPECT_NEAR(std::stod(line[3]), second, 1e-5);
    EXPECT_EQ(line[1], second > 0.5 ? "true" : "false");
  }
}

TEST_F(PredictTest, TwoClassesComeFromTwoLogitsWithCrossEntropy) {
  recipe_.data.targets = {"good"};
  recipe_.train.loss = "cross_entropy";
  train_it();
  const Cells cells = predict_it();
  const Dataset dataset = open_dataset(folder_ / "data");
  const PredictModel run = open_run(options_.run_dir, dataset);
  for (int64_t row = 0; row < kRows; row += 3) {
    const test::Row logits = by_hand(run, dataset, row);
    ASSERT_EQ(logits.size(), 2u);
    EXPECT_NEAR(std::stod(cells[static_cast<size_t>(row) + 1][3]), 1 / (1 + std::exp(logits[0] - logits[1])),
                1e-5);
  }
}

TEST_F(PredictTest, SeveralClassesAreASoftmax) {
  recipe_.data.targets = {"sort"};
  train_it();
  const Cells cells = predict_it();
  const Dataset dataset = open_dataset(folder_ / "data");
  const PredictModel run = open_run(options_.run_dir, dataset);
  EXPECT_EQ(cells[0],
            (std::vector<std::string>{"row", "sort", "sort.p.low", "sort.p.middle", "sort.p.high"}));
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<std::string>& line = cells[static_cast<size_t>(row) + 1];
    const test::Row logits = by_hand(run, dataset, row);
    double total = 0;
    for (const double logit : logits) total += std::exp(logit);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(std::stod(line[2 + i]), std::exp(logits[i]) / total, 1e-5);
    const auto best = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
    EXPECT_EQ("sort.p." + line[1], cells[0][2 + best]);
  }
}

TEST_F(PredictTest, ManyClassesSayTheLikeliestAlone) {
  Dataset dataset = open_dataset(folder_ / "data");
  for (Column& column : dataset.columns) {
    if (column.name != "sort") continue;
    while (column.categories.size() < 33)
      column.categories.push_back(fmt::format("a, \"{}\"", column.categories.size()));
    column.categories[1] = "line\nend";
  }
  std::ofstream(folder_ / "data" / "manifest.json") << manifest_json(dataset);
  recipe_.data.targets = {"sort"};
  train_it();
  const Cells cells = predict_it();
  const PredictModel run = open_run(options_.run_dir, dataset);
  EXPECT_EQ(cells[0], (std::vector<std::string>{"row", "sort", "sort.p"}));
  for (int64_t row = 0; row < kRows; row += 7) {
    const std::vector<std::string>& line = cells[static_cast<size_t>(row) + 1];
    const test::Row logits = by_hand(run, dataset, row);
    double total = 0;
    for (const double logit : logits) total += std::exp(logit);
    const auto best = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
    EXPECT_EQ(line[1], dataset.column("sort").categories[best]);
    EXPECT_NEAR(std::stod(line[2]), std::exp(logits[best]) / total, 1e-5);
  }
}

TEST_F(PredictTest, WindowsEndWithTheNewestRow) {
  for (const auto& [type, horizon] : {std::pair{"lstm", 1}, {"lstm", 24}, {"mlp", 0}}) {
    with_windows(type, 5, horizon);
    if (horizon == 0) recipe_.data.features = {"x", "kind"};
    recipe_.data.stride = 2;
    train_it();
    const Cells cells = predict_it();
    const Dataset dataset = open_dataset(folder_ / "data");
    const PredictModel run = open_run(options_.run_dir, dataset);
    const auto ahead = static_cast<size_t>(std::max(1, horizon));
    ASSERT_EQ(cells[0].size(), 2 + ahead);
    EXPECT_EQ(cells[0][1], "when");
    EXPECT_EQ(cells[0][2], horizon > 1 ? "y2+1" : "y2");
    EXPECT_EQ(cells[0].back(), horizon > 1 ? "y2+24" : "y2");
    ASSERT_EQ(cells.size(), (kRows - 5) / 2 + 2u);
    EXPECT_EQ(cells.back()[0], std::to_string(kRows - 1));
    EXPECT_EQ(cells.back()[1], "2013-01-10T23:00:00Z");
    const TargetColumn& target = run.plan.targets[0];
    for (size_t i = 1; i < cells.size(); i += 9) {
      const int64_t last = std::stoll(cells[i][0]);
      const test::Row expected = by_hand(run, dataset, last - 4);
      ASSERT_EQ(expected.size(), ahead);
      for (size_t step = 0; step < ahead; ++step) {
        EXPECT_NEAR(std::stod(cells[i][2 + step]), expected[step] * target.deviation + target.mean,
                    1e-4 * target.deviation);
      }
    }
  }
}

// The layers of a wide model hold far more than its rows do: some samples are computed at a time.
TEST_F(PredictTest, AWideModelIsComputedInPieces) {
  with_windows("mlp", 60, 1);
  recipe_.data.features = {"x"};
  recipe_.data.split = {.by = "time", .validation = 0, .test = 0};
  recipe_.model.width = 4096;
  recipe_.model.layers = 1;
  recipe_.train.epochs.reset();
  recipe_.train.steps = 1;
  train_it();
  const Cells cells = predict_it();
  const Dataset dataset = open_dataset(folder_ / "data");
  const PredictModel run = open_run(options_.run_dir, dataset);
  ASSERT_LT(run.chunk, 40);
  ASSERT_EQ(cells.size(), kRows - 60 + 2u);
  const TargetColumn& target = run.plan.targets[0];
  for (const size_t i : {size_t{1}, static_cast<size_t>(run.chunk + 1), cells.size() - 1}) {
    const int64_t last = std::stoll(cells[i][0]);
    EXPECT_EQ(last, 58 + static_cast<int64_t>(i));
    EXPECT_NEAR(std::stod(cells[i][2]), by_hand(run, dataset, last - 59)[0] * target.deviation + target.mean,
                1e-4 * target.deviation);
  }
}

TEST_F(PredictTest, PartsAreThoseOfTheRunsSplit) {
  for (const int64_t window : {0, 4}) {
    if (window > 0) with_windows("mlp", window, 3);
    train_it();
    const Dataset dataset = open_dataset(folder_ / "data");
    const Split split = split_samples(dataset, recipe_);
    const std::map<std::string, const RowSet*> parts = {
        {"train", &split.train}, {"validation", &split.validation}, {"test", &split.test}};
    options_.part = "all";
    std::map<std::string, std::vector<std::string>> of_all;
    for (const std::vector<std::string>& line : predict_it()) of_all[line[0]] = line;
    for (const auto& [part, starts] : parts) {
      options_.part = part;
      const Cells cells = predict_it();
      ASSERT_EQ(static_cast<int64_t>(cells.size()) - 1, starts->count());
      for (size_t i = 1; i < cells.size(); ++i) {
        const int64_t last = std::stoll(cells[i][0]);
        EXPECT_TRUE(starts->contains(last - std::max<int64_t>(0, window - 1)));
        const std::vector<std::string>& same = of_all[cells[i][0]];
        ASSERT_EQ(cells[i].size(), same.size());
        EXPECT_NEAR(std::stod(cells[i].back()), std::stod(same.back()), 1e-5);  // another batch, other bits
      }
    }
  }
}

}  // namespace
}  // namespace troika

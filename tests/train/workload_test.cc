#include "troika/train/workload.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "support/temporary_folder.h"
#include "train/support/flock.h"
#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/train/models/registry.h"

namespace troika {
namespace {

constexpr int64_t kRows = 480;  // 20 days

class WorkloadTest : public testing::Test {
 protected:
  WorkloadTest() { write_flock(folder_ / "data", kRows); }

  Recipe rows(const std::string& target) {
    Recipe recipe;
    recipe.data.path = (folder_ / "data").string();
    recipe.data.targets = {target};
    recipe.model.width = 4;
    recipe.model.layers = 1;
    recipe.train.epochs = 2;
    recipe.train.batch = 32;
    recipe.parallel.ranks = 2;
    return recipe;
  }

  Recipe windows(const std::string& target, int64_t window, int64_t horizon) {
    Recipe recipe = rows(target);
    recipe.data.time = "when";
    recipe.data.window = window;
    recipe.data.horizon = horizon;
    recipe.data.split.by = "time";
    return recipe;
  }

  std::string message(const Recipe& recipe) {
    try {
      prepare(recipe);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
};

TEST_F(WorkloadTest, WindowsAreSamples) {
  const Recipe recipe = windows("y", 6, 2);
  const Workload work = prepare(recipe);
  EXPECT_EQ(work.features.windows.span(), 8);
  EXPECT_EQ(work.train_samples, work.split.train.count());
  EXPECT_EQ(work.steps_per_epoch(), (work.train_samples + 31) / 32);
  EXPECT_EQ(work.total_steps(), 2 * work.steps_per_epoch());
  const ModelShape shape = model_shape(work.features, work.loss_kind);
  EXPECT_EQ(shape.window, 6);
  EXPECT_EQ(shape.outputs, 2);
  const auto source = open_training_source(work, 1);
  EXPECT_EQ(source->size(), work.train_samples);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < work.steps_per_epoch(); ++step) {
    const StepPlace place = place_of_step(work, step);
    RowBuffer buffer;
    source->gather(0, place.epoch, place.positions, buffer);
    const int64_t n = place.positions.size();
    ASSERT_EQ(buffer.rows, 8 * n);
    const Batch batch = make_batch(work, buffer, 5);
    EXPECT_EQ(batch.samples, n);
    EXPECT_EQ(batch.first_sample, 5);
    EXPECT_FALSE(batch.weights.defined());
    EXPECT_EQ(batch.inputs[0].sizes(),
              (std::vector<int64_t>{n, 6, static_cast<int64_t>(work.features.floats.size())}));
    EXPECT_EQ(batch.inputs[1].sizes(),
              (std::vector<int64_t>{n, 6, static_cast<int64_t>(work.features.categories.size())}));
    EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{n, 2}));
    const std::vector<int64_t> starts = source->row_numbers(place.epoch, place.positions);
    seen.insert(starts.begin(), starts.end());
    // The batch is what the windows' rows say: y lies at column 7 of the dataset.
    const Column& y = work.dataset.column("y");
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t ahead = 0; ahead < 2; ++ahead) {
        const double value =
            buffer.floats[static_cast<size_t>((i * 8 + 6 + ahead) * work.dataset.float_columns + y.index)];
        const TargetColumn& target = work.features.targets[0];
        EXPECT_NEAR(batch.target[i][ahead].item<double>(), (value - target.mean) / target.deviation, 1e-5);
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), work.train_samples);
  for (const int64_t start : seen) EXPECT_TRUE(work.split.train.contains(start));
}

// Nothing of the later parts may be known in training: neither their rows nor what they would do to the mean.
TEST_F(WorkloadTest, MeansComeFromTheRowsOfTrainingWindows) {
  const Workload work = prepare(windows("y2", 5, 1));
  const RowSet covered = covered_rows(work.split.train, 6);
  double sum = 0, count = 0;
  const Column& column = work.dataset.column("y2");
  scan_rows(work.dataset, covered, [&](const RowBuffer& part) {
    for (int64_t row = 0; row < part.rows; ++row) {
      sum += part.floats[static_cast<size_t>(row * work.dataset.float_columns + column.index)];
      ++count;
    }
  });
  EXPECT_LT(count, 0.9 * kRows);
  EXPECT_NEAR(work.features.targets[0].mean, sum / count, 1e-12);
}

TEST_F(WorkloadTest, ClassesOfWindowsAndTheirWeights) {
  Recipe recipe = windows("sort", 4, 1);
  recipe.train.class_weights = "balanced";
  recipe.data.weight = "count";
  const Workload work = prepare(recipe);
  RowBuffer buffer;
  open_training_source(work, 1)->gather(0, 0, {0, 9}, buffer);
  const Batch batch = make_batch(work, buffer);
  ASSERT_TRUE(batch.weights.defined());
  EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{9}));
  const int count = work.dataset.column("count").index, sort = work.dataset.column("sort").index;
  for (int64_t i = 0; i < 9; ++i) {
    const float* const row = &buffer.floats[static_cast<size_t>((i * 5 + 4) * work.dataset.float_columns)];
    EXPECT_EQ(batch.target[i].item<int64_t>(), static_cast<int64_t>(row[sort]));
    EXPECT_EQ(batch.weights[i].item<double>(),
              row[count] * work.weights.of_class[static_cast<size_t>(row[sort])]);
  }
  const LossValue value = work.loss({at::zeros({9, 3})}, batch);
  EXPECT_EQ(value.weight, batch.weights.sum().item<double>());
}

TEST_F(WorkloadTest, SettingsReachTheEngine) {
  Recipe recipe = rows("y");
  recipe.train.clip_norm = 0.5;
  recipe.train.precision = "bf16";
  recipe.model.dropout = 0.5;  // on two ranks
  const Workload work = prepare(recipe);
  EXPECT_EQ(replica_options(work).clip_norm, 0.5);
  EXPECT_TRUE(replica_options(work).bf16);
  EXPECT_EQ(replica_options(work).dtype, at::kFloat);
  recipe.train.precision = "float64";
  EXPECT_FALSE(replica_options(prepare(recipe)).bf16);
  EXPECT_EQ(prepare(recipe).dtype(), at::kDouble);
}

TEST_F(WorkloadTest, InputsNeedNoRowsAhead) {
  const Workload work = prepare(windows("y", 6, 2));
  RowBuffer buffer;
  open_training_source(work, 1)->gather(0, 0, {0, 1}, buffer);
  const Batch batch = make_batch(work, buffer);
  buffer.rows = 6;
  buffer.floats.resize(static_cast<size_t>(6 * work.dataset.float_columns));
  buffer.ints.resize(static_cast<size_t>(6 * work.dataset.int_columns));
  const Tensors inputs = make_inputs(work.features, work.dataset, buffer, at::kFloat, 6);
  EXPECT_TRUE(at::equal(inputs[0], batch.inputs[0]));
  EXPECT_TRUE(at::equal(inputs[1], batch.inputs[1]));
}

TEST_F(WorkloadTest, GroupsOfBatchNormStayTogether) {
  Recipe recipe = windows("y", 6, 1);
  recipe.model.type = "cnn";
  recipe.train.batch_norm_group = 8;
  const Workload work = prepare(recipe);
  EXPECT_EQ(work.piece_unit(), 8);
  EXPECT_EQ(replica_options(work).batch_norm_group, 8);
  recipe.train.batch_norm_group = 0;
  EXPECT_NE(message(recipe).find("conv1"), std::string::npos) << message(recipe);
  recipe.train.batch_norm_group = 16;
  recipe.parallel.micro_batches = 2;
  EXPECT_NE(message(recipe).find("conv1"), std::string::npos) << message(recipe);
  // Left to choose, it takes no more ranks than there are groups.
  recipe.parallel.ranks.reset();
  EXPECT_EQ(most_ranks(recipe), 1);
  EXPECT_EQ(prepare(recipe).ranks(), 1);
  recipe.train.batch_norm_group = 1;
  EXPECT_EQ(most_ranks(recipe), std::min(usable_cores(), 16));
  recipe.train.batch_norm_group = 0;
  recipe.parallel.micro_batches = 1;
  EXPECT_EQ(prepare(recipe).ranks(), 1);
  EXPECT_EQ(most_ranks(rows("y")), std::min(usable_cores(), 32));
}

TEST_F(WorkloadTest, WhatCantWorkIsSaidBeforeAnythingIsWritten) {
  Recipe recipe = rows("y");
  recipe.train.epochs.reset();
  recipe.train.steps = 10;
  recipe.train.warmup = 10;
  EXPECT_NE(message(recipe).find("warmup"), std::string::npos) << message(recipe);
  recipe = windows("y", 6, 1);
  recipe.data.time = "whn";
  EXPECT_NE(message(recipe).find("did you mean \"when\"?"), std::string::npos) << message(recipe);
  recipe = rows("y");
  recipe.data.split.by = "series";
  recipe.data.series = {"kind"};
  EXPECT_EQ(message(recipe), "no error");
  recipe.data.series = {"kid"};
  EXPECT_NE(message(recipe).find("\"kid\""), std::string::npos) << message(recipe);
}

}  // namespace
}  // namespace troika

// A small trained run and what predict makes of it, for the tests of predict.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "train/support/flock_recipe.h"
#include "troika/train/predict.h"
#include "troika/train/trainer.h"

namespace troika::test {

using Cells = std::vector<std::vector<std::string>>;

inline constexpr int64_t kRows = 240;

/// RFC 4180: quotes, and lines' ends within them.
inline Cells cells_of(const std::string& csv) {
  Cells lines(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < csv.size(); ++i) {
    std::string& cell = lines.back().back();
    if (quoted) {
      if (csv[i] != '"') {
        cell += csv[i];
      } else if (i + 1 < csv.size() && csv[i + 1] == '"') {
        cell += csv[++i];
      } else {
        quoted = false;
      }
    } else if (csv[i] == '"') {
      quoted = true;
    } else if (csv[i] == ',') {
      lines.back().emplace_back();
    } else if (csv[i] == '\n') {
      lines.push_back({""});
    } else {
      cell += csv[i];
    }
  }
  EXPECT_EQ(lines.back(), std::vector<std::string>{""}) << "the last line has no end";
  lines.pop_back();
  return lines;
}

class PredictRun : public testing::Test {
 protected:
  PredictRun() {
    write_flock(folder_ / "data", kRows);
    recipe_ = flock_recipe(folder_ / "data");
    recipe_.data.features = {"x", "count", "kind", "flag"};
    recipe_.model.width = 6;
    recipe_.train.epochs = 1;
    recipe_.train.batch = 32;
    recipe_.train.learning_rate = 0.05;
    options_.run_dir = folder_ / "run";
    options_.data = folder_ / "data";
    options_.output = folder_ / "out.csv";
    options_.quiet = true;
  }

  void with_windows(const char* type, int64_t window, int64_t horizon) {
    recipe_.data.time = "when";
    recipe_.data.window = window;
    recipe_.data.horizon = horizon;
    recipe_.data.features = {"x", "y", "kind"};
    recipe_.data.split.by = "time";
    recipe_.data.split.validation = recipe_.data.split.test = 0.25;
    recipe_.model.type = type;
    recipe_.data.targets = {"y2"};  // has a value in every row
  }

  void train_it() {
    TrainOptions options;
    options.run_dir = options_.run_dir;
    options.overwrite = true;
    options.quiet = true;
    train(recipe_, options);
  }

  Cells predict_it() {
    options_.overwrite = true;
    const PredictReport report = predict(options_);
    const Cells cells = cells_of(read_text(options_.output));
    EXPECT_EQ(cells[0], report.columns);
    EXPECT_EQ(static_cast<int64_t>(cells.size()) - 1, report.predictions);
    return cells;
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  std::string message() {
    return error_of([this] { predict(options_); });
  }

  TemporaryFolder folder_;
  Recipe recipe_;
  PredictOptions options_;
};

}  // namespace troika::test

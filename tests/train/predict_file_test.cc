// The CSV of predictions: whole or absent, where it was asked for; and what doesn't fit the run is refused.
#include "troika/train/predict_file.h"

#include <fstream>

#include "train/support/predict_run.h"
#include "troika/data/cell_text.h"

namespace troika {
namespace {

namespace fs = std::filesystem;
using test::Cells;
using test::cells_of;
using test::kRows;

class PredictFile : public test::PredictRun {};

TEST_F(PredictFile, CellsAreQuoted) {
  EXPECT_EQ(csv_cell("plain text"), "plain text");
  EXPECT_EQ(csv_cell("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_cell("a \"b\""), "\"a \"\"b\"\"\"");
  EXPECT_EQ(csv_cell("a\nb\r"), "\"a\nb\r\"");
}

TEST_F(PredictFile, NewRowsNeedNoTargetAndNoTime) {
  recipe_.data.time = "when";
  recipe_.data.split.by = "time";
  train_it();
  const Cells before = predict_it();
  Dataset dataset = open_dataset(folder_ / "data");
  for (Column& column : dataset.columns) {  // renamed is as good as absent
    if (column.name == "y" || column.name == "when") column.name += "_not";
  }
  std::ofstream(folder_ / "data" / "manifest.json") << manifest_json(dataset);
  const Cells cells = predict_it();
  EXPECT_EQ(cells[0], (std::vector<std::string>{"row", "y"}));
  ASSERT_EQ(cells.size(), before.size());
  for (size_t i = 1; i < cells.size(); ++i) EXPECT_EQ(cells[i][1], before[i][2]);
  options_.part = "test";
  EXPECT_NE(message().find("y"), std::string::npos);
  EXPECT_EQ(cells_of(read_text(options_.output)), cells) << "what was there is kept";
}

// As `troika pack --like` packs a CSV that lacks a column: all null.
TEST_F(PredictFile, AnInputWithoutAnyValueIsSaid) {
  train_it();
  Dataset dataset = open_dataset(folder_ / "data");
  const auto said = [this] {
    options_.quiet = false;
    testing::internal::CaptureStderr();
    predict_it();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said().find("note:"), std::string::npos);
  for (Column& column : dataset.columns) {
    if (column.name == "x" || column.name == "big") column.nulls = kRows;
  }
  std::ofstream(folder_ / "data" / "manifest.json") << manifest_json(dataset);
  EXPECT_NE(said().find("has a value in x, which"), std::string::npos) << said();
}

TEST_F(PredictFile, OtherCategoriesAreRefused) {
  train_it();
  Dataset dataset = open_dataset(folder_ / "data");
  for (Column& column : dataset.columns) {
    if (column.name == "kind") std::swap(column.categories[0], column.categories[2]);
  }
  std::ofstream(folder_ / "data" / "manifest.json") << manifest_json(dataset);
  EXPECT_NE(message().find("kind"), std::string::npos);
  EXPECT_NE(message().find("--like"), std::string::npos) << message();
  EXPECT_FALSE(fs::exists(options_.output));
}

TEST_F(PredictFile, APartThatTheSplitKeepsNoRowsForIsSaid) {
  recipe_.data.split.test = 0;
  train_it();
  options_.part = "test";
  EXPECT_NE(message().find("data.split.test"), std::string::npos) << message();
}

TEST_F(PredictFile, AValueBeyondAllMeasureIsNamedByItsRow) {
  train_it();
  // The rows have checksums; the mean that is taken from them has none.
  FeaturePlan plan = read_features(options_.run_dir / "features.json");
  for (FloatInput& input : plan.floats) {
    if (input.column == "x" && input.encoding == Encoding::standardised) input.mean = 1e300;
  }
  std::ofstream(options_.run_dir / "features.json") << to_json(plan);
  EXPECT_NE(message().find("row 0 is not a finite number"), std::string::npos) << message();
  EXPECT_EQ(files(), (std::vector<std::string>{"data", "run"}));
}

TEST_F(PredictFile, WhatIsThereIsKeptUnlessToldOtherwise) {
  train_it();
  std::ofstream(options_.output) << "mine";
  EXPECT_NE(message().find("--overwrite"), std::string::npos);
  EXPECT_EQ(read_text(options_.output), "mine");
  options_.output = folder_.path();
  EXPECT_NE(message().find("it is a folder"), std::string::npos);
  options_.output = folder_ / "none" / "out.csv";
  EXPECT_NE(message().find("there is no folder"), std::string::npos);
  EXPECT_EQ(files(), (std::vector<std::string>{"data", "out.csv", "run"}));
}

TEST_F(PredictFile, LinksStayLinks) {
  train_it();
  std::ofstream(folder_ / "real.csv") << "old";
  fs::create_symlink("real.csv", options_.output);
  const Cells cells = predict_it();
  EXPECT_TRUE(fs::is_symlink(options_.output));
  EXPECT_EQ(cells_of(read_text(folder_ / "real.csv")), cells);
  fs::remove(folder_ / "real.csv");
  options_.overwrite = false;
  predict(options_);
  EXPECT_TRUE(fs::is_symlink(options_.output) && fs::exists(folder_ / "real.csv"));
  fs::remove(folder_ / "real.csv");
  fs::create_symlink("out.csv", folder_ / "real.csv");
  EXPECT_NE(message().find("links go round"), std::string::npos);
}

TEST_F(PredictFile, AFullDiskIsAnErrorAndTheDeviceStays) {
  train_it();
  fs::create_symlink("/dev/full", options_.output);  // /dev/full itself, if the link were not followed
  EXPECT_NE(message().find("No space left"), std::string::npos) << message();
  EXPECT_TRUE(fs::is_symlink(options_.output) && fs::is_character_file("/dev/full"));
  EXPECT_EQ(files(), (std::vector<std::string>{"data", "out.csv", "run"}));
}

TEST_F(PredictFile, AnUnfinishedRunHasNoCheckpointYet) {
  train_it();
  fs::remove(options_.run_dir / "best.safetensors");
  EXPECT_EQ(predict(options_).weights, options_.run_dir / "last.safetensors");
  fs::remove(options_.output);
  fs::remove(options_.run_dir / "last.safetensors");
  EXPECT_NE(message().find("no checkpoint yet"), std::string::npos);
  fs::remove(options_.run_dir / "features.json");
  EXPECT_NE(message().find("has no features.json"), std::string::npos);
  options_.run_dir = folder_ / "nothing";
  EXPECT_NE(message().find("is no run directory"), std::string::npos);
}

TEST_F(PredictFile, NothingIsLeftWithoutCommit) {
  {
    PredictionFile file(options_.output, false);
    file.add(std::string(3 << 20, 'x'));  // beyond what is buffered
    EXPECT_EQ(files().size(), 2u);
    EXPECT_FALSE(fs::exists(options_.output));
  }
  EXPECT_EQ(files(), std::vector<std::string>{"data"});
}

}  // namespace
}  // namespace troika

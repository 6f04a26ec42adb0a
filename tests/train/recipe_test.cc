#include "troika/train/recipe.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"
#include "troika/base/error.h"

namespace troika {
namespace {

constexpr const char* kGood = R"([data]
path = "flights"
target = "delay"

[train]
epochs = 3
)";

class RecipeTest : public testing::Test {
 protected:
  Recipe parse(const std::string& text, const std::vector<std::string>& settings = {}) {
    std::ofstream(folder_ / "recipe.toml") << text;
    return parse_recipe(folder_ / "recipe.toml", settings);
  }

  /// The message, with the folder's name taken out.
  std::string message(const std::string& text, const std::vector<std::string>& settings = {}) {
    try {
      parse(text, settings);
    } catch (const UsageError& error) {
      std::string what = error.what();
      const std::string prefix = folder_.path().string() + "/";
      for (size_t at; (at = what.find(prefix)) != std::string::npos;) what.erase(at, prefix.size());
      return what;
    }
    return "no error";
  }

  TemporaryFolder folder_;
};

TEST_F(RecipeTest, ReadsWhatIsThereAndFillsInTheRest) {
  const Recipe recipe = parse(kGood);
  EXPECT_EQ(recipe.data.path,
            (folder_ / "flights").string());  // relative to the recipe, not to where one stands
  EXPECT_EQ(recipe.data.targets, std::vector<std::string>{"delay"});
  EXPECT_EQ(recipe.train.epochs, 3);
  EXPECT_EQ(recipe.train.batch, 256);
  EXPECT_FALSE(recipe.parallel.ranks);
}

TEST_F(RecipeTest, TextFormRoundTrips) {
  Recipe recipe = parse(kGood);
  EXPECT_EQ(parse(to_toml(recipe)), recipe);
  recipe.data.targets = {"a \"b\" \\ \n", "zwei"};
  recipe.data.features = {"x", "ü"};
  recipe.data.time = "when";
  recipe.data.split = {"time", 0.25, 0.125};
  recipe.model = {"mlp", 7, 0, 0.3};
  recipe.train.epochs.reset();
  recipe.train.steps = 12;
  recipe.train.learning_rate = 1e-7;
  recipe.train.loss = "huber";
  recipe.train.early_stopping = 3;
  recipe.parallel.ranks = 4;
  recipe.parallel.mesh = Mesh{4, 1, 1};
  recipe.parallel.threads_per_rank = 2;
  recipe.parallel.weights = "replicated";
  recipe.parallel.deadline = 0.5;
  EXPECT_EQ(parse(to_toml(recipe)), recipe);
}

TEST_F(RecipeTest, SettingsGoBeforeTheFile) {
  const Recipe recipe =
      parse(kGood, {"train.steps=5", "model.width = 64", "data.split.test=0.2", "train.loss=\"mae\""});
  EXPECT_EQ(recipe.train.steps, 5);
  EXPECT_FALSE(recipe.train.epochs);  // replaced, not contradicted
  EXPECT_EQ(recipe.model.width, 64);
  EXPECT_EQ(recipe.data.split.test, 0.2);
  EXPECT_EQ(recipe.train.loss, "mae");
}

TEST_F(RecipeTest, UnknownNamesAreNamedWithTheNearest) {
  EXPECT_EQ(message(std::string(kGood) + "bacth = 5\n"),
            "recipe.toml:7: unknown key \"bacth\" in [train] (did you mean \"batch\"?); there are: epochs, "
            "steps, batch, "
            "optimizer, learning_rate, weight_decay, loss, seed, precision, log_every, checkpoint_every, "
            "early_stopping, device, rate_schedule, warmup, clip_norm, batch_norm_group");
  EXPECT_EQ(
      message(std::string(kGood) + "[modle]\nwidth = 5\n"),
      "recipe.toml:7: unknown section \"modle\" (did you mean \"model\"?); there are: data, model, train, "
      "parallel");
  EXPECT_EQ(message(kGood, {"train.epoch=4"}).substr(0, 87),
            "--set train.epoch=4: unknown key \"epoch\" in [train] (did you mean \"epochs\"?); there are");
  EXPECT_EQ(message(std::string(kGood) + "loss = \"mes\"\n"),
            "recipe.toml:7: train.loss is \"mes\", expected one of mse, mae, huber, binary_cross_entropy, "
            "cross_entropy "
            "(did you mean \"mse\"?)");
}

TEST_F(RecipeTest, WrongTypesAndRangesAreNamed) {
  EXPECT_EQ(message(std::string(kGood) + "batch = \"5\"\n"),
            "recipe.toml:7: train.batch is '5' (string), expected a whole number");
  EXPECT_EQ(message(std::string(kGood) + "batch = 0\n"),
            "recipe.toml:7: train.batch is 0, expected 1 to 1099511627776");
  EXPECT_EQ(message(std::string(kGood) + "learning_rate = nan\n"),
            "recipe.toml:7: train.learning_rate is nan, expected 0 to 1000000");
  EXPECT_EQ(message(std::string(kGood) + "steps = 4\n"),
            "recipe.toml:7: train.steps stands beside train.epochs; keep one of them");
  EXPECT_EQ(message("data = 5\n"), "recipe.toml:1: data is 5 (integer), expected a table in braces");
  EXPECT_EQ(message("[data]\npath = \"x\"\n"), "recipe.toml: data.target is missing: the column to predict");
  EXPECT_EQ(message("[data]\npath = \"x\"\ntarget = \"y\"\nfeatures = [\"x\", \"y\"]\n"),
            "recipe.toml:4: data.features holds the target \"y\": the model would be given the answer");
  EXPECT_EQ(message("[data]\npath = \"x\"\ntarget = \"y\"\nsplit = {train = 0.9, test = 0.2}\n"),
            "recipe.toml:4: data.split.train 0.9 + validation 0.1 + test 0.2 should be 1, with something "
            "left to train "
            "on");
  EXPECT_EQ(message("[data]\npath = \"x\"\ntarget = \"y\"\nsplit = {by = \"time\"}\n"),
            "recipe.toml: data.time is missing: split.by = \"time\" needs the column that says when a row "
            "happened");
  EXPECT_EQ(message("[data\n").substr(0, 28), "recipe.toml:1:6: not TOML: E");
}

TEST_F(RecipeTest, WhatIsNotBuiltYetSaysSo) {
  EXPECT_EQ(message(std::string(kGood) + "[model]\ntype = \"lstm\"\n"),
            "recipe.toml:8: model.type = \"lstm\" is not in this version, which has mlp");
  EXPECT_EQ(message(std::string(kGood) + "clip_norm = 1.0\n"),
            "recipe.toml:7: train.clip_norm is not in this version");
  EXPECT_EQ(message(std::string(kGood) + "precision = \"bf16\"\n"),
            "recipe.toml:7: train.precision = \"bf16\" is not in this version, which has float32, float64");
  EXPECT_EQ(message(std::string(kGood) + "[model]\nheads = 2\n"),
            "recipe.toml:8: model.heads is not used by the mlp");
}

TEST_F(RecipeTest, BadSettings) {
  EXPECT_EQ(message(kGood, {"train.steps"}),
            "--set train.steps: expected section.key=value, such as --set train.steps=5");
  EXPECT_EQ(message(kGood, {"data.target=delay"}),
            "--set data.target=delay: delay is not a TOML value; text needs quotes of its own: --set "
            "'data.target=\"delay\"'");
  EXPECT_EQ(message(kGood, {"train.steps=5\nbatch=3"}), "--set train.steps=5\nbatch=3: expected one value");
}

TEST_F(RecipeTest, CommandLineOverridesAndMeshArithmetic) {
  std::ofstream(folder_ / "recipe.toml") << kGood;
  RecipeRequest request;
  request.recipe = folder_ / "recipe.toml";
  request.ranks = 3;
  EXPECT_EQ(load_recipe(request).parallel.ranks, 3);
  request.mesh = "data=2";
  EXPECT_THROW(load_recipe(request), UsageError);
  request.ranks = 2;
  EXPECT_EQ(load_recipe(request).parallel.mesh, (Mesh{2, 1, 1}));
  request.ranks.reset();
  request.mesh = "data=2,pipeline=2";
  EXPECT_THROW(load_recipe(request), UsageError);  // not built yet
  request.mesh.reset();
  request.deadline = 7.5;
  EXPECT_EQ(load_recipe(request).parallel.deadline, 7.5);
  request.weights = "both";
  EXPECT_THROW(load_recipe(request), UsageError);
}

TEST(DefaultRunDir, IsNamedAfterTheRecipe) {
  EXPECT_EQ(default_run_dir("examples/flights/recipe.toml"), Path("runs/flights"));
  EXPECT_EQ(default_run_dir("a/small.toml"), Path("runs/small"));
}

}  // namespace
}  // namespace troika

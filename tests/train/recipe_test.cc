#include "troika/train/recipe.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/error_of.h"
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
            "steps, batch, optimizer, learning_rate, rate_schedule, warmup, weight_decay, clip_norm, "
            "clip_by, loss, "
            "class_weights, start_from, start_fresh, batch_norm_group, seed, precision, log_every, "
            "checkpoint_every, early_stopping, device");
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
  EXPECT_EQ(
      message("[data]\npath = \"x\"\n"),
      "recipe.toml: data.target is missing: the column to predict (model.type = \"gpt\", which reads text, "
      "needs none)");
  EXPECT_EQ(message("[data]\npath = \"x\"\ntarget = \"y\"\nfeatures = [\"x\", \"y\"]\n"),
            "recipe.toml:4: data.features holds the target \"y\": the model would be given the answer");
  EXPECT_EQ(message("[data]\npath = \"x\"\ntarget = \"y\"\nsplit = {train = 0.9, test = 0.2}\n"),
            "recipe.toml:4: data.split.train 0.9 + validation 0.1 + test 0.2 should be 1, with something "
            "left to train "
            "on");
  EXPECT_EQ(message("[data]\npath = \"x\"\ntarget = \"y\"\nsplit = {validation = 0.6, test = 0.6}\n"),
            "recipe.toml: data.split.train -0.2 + validation 0.6 + test 0.6 should be 1, with something left "
            "to train on");
  EXPECT_EQ(message("[data]\npath = \"x\"\ntarget = \"y\"\nsplit = {by = \"time\"}\n"),
            "recipe.toml: data.time is missing: split.by = \"time\" needs the column that says when a row "
            "happened");
  EXPECT_EQ(message("[data\n").substr(0, 28), "recipe.toml:1:6: not TOML: E");
}

TEST_F(RecipeTest, RecomputeIsAChoiceOrAListOfLayers) {
  const Recipe layers = parse(kGood, {"parallel.recompute=[\"block*\", \"head\"]"});
  EXPECT_EQ(layers.parallel.recompute, "never");
  EXPECT_EQ(layers.parallel.recompute_layers, (std::vector<std::string>{"block*", "head"}));
  EXPECT_EQ(parse(to_toml(layers)), layers);
  const Recipe stages = parse(kGood, {"parallel.recompute=\"always\""});
  EXPECT_TRUE(stages.parallel.recompute_layers.empty());
  EXPECT_EQ(parse(to_toml(stages)), stages);
  EXPECT_NE(message(kGood, {"parallel.recompute=\"alway\""}).find("did you mean \"always\""),
            std::string::npos);
  EXPECT_NE(message(kGood, {"parallel.recompute=[]"}).find("is an empty list"), std::string::npos);
}

TEST_F(RecipeTest, ATextNeedsItsWindowOnly) {
  const std::string text = "[data]\npath = \"x\"\nwindow = 32\n[model]\ntype = \"gpt\"\nheads = 4\n";
  const Recipe recipe = parse(text);
  EXPECT_EQ(recipe.data.targets, std::vector<std::string>{"byte"});
  EXPECT_EQ(recipe.data.window, 32);
  EXPECT_EQ(recipe.data.stride, 32);
  EXPECT_EQ(recipe.data.split.by, "order");
  EXPECT_EQ(parse(to_toml(recipe)), recipe);
  Recipe files = parse(text, {"data.stride=8", "data.split={by=\"series\"}", "data.series=\"file\""});
  EXPECT_EQ(files.data.stride, 8);
  EXPECT_EQ(files.data.series, std::vector<std::string>{"file"});
  EXPECT_EQ(parse(to_toml(files)), files);
  const std::string rest =
      " is of tables, and model.type = \"gpt\" reads text, of which it predicts the next byte";
  for (const std::string setting : {"target=\"x\"", "features=[\"x\"]", "time=\"x\"", "weight=\"x\"",
                                    "season=3", "max_gap=3", "horizon=2"}) {
    const std::string key = "data." + setting.substr(0, setting.find('='));
    EXPECT_EQ(message(text, {"data." + setting}), "--set data." + setting + ": " + key + rest);
  }
  EXPECT_EQ(message(text, {"data.series=\"x\""}),
            "--set data.series=\"x\": data.series" + rest + "; its series are its files, \"file\"");
  EXPECT_EQ(
      message("[data]\npath = \"x\"\n[model]\ntype = \"gpt\"\n"),
      "recipe.toml: data.window is missing: how many bytes model.type = \"gpt\" sees in a sample, 128 for "
      "example");
  EXPECT_EQ(message(text, {"train.loss=\"mse\""}),
            "--set train.loss=\"mse\": train.loss of the gpt is cross_entropy");
  EXPECT_EQ(
      message(text, {"train.class_weights=\"balanced\""}),
      "--set train.class_weights=\"balanced\": train.class_weights is not used by the gpt: each byte counts "
      "the same");
  EXPECT_EQ(
      message(kGood, {"data.split={by=\"order\"}"}),
      "--set data.split={by=\"order\"}: data.split.by = \"order\" cuts series in the order of their rows, "
      "and needs data.window");
}

TEST_F(RecipeTest, WhatIsNotBuiltYetSaysSo) {
  EXPECT_EQ(message(std::string(kGood) + "device = \"cuda\"\n"),
            "recipe.toml:7: train.device = \"cuda\" is not in this version, which has cpu");
}

constexpr const char* kSeries = R"([data]
path = "weather"
target = "temp"
time = "when"
series = "origin"
window = 168
horizon = 24
)";

TEST_F(RecipeTest, WindowsAndTheNewSettings) {
  const Recipe recipe = parse(std::string(kSeries) + R"(max_gap = 5400.5
season = 24
stride = 3
weight = "w"
[model]
type = "transformer"
width = 64
heads = 4
[train]
rate_schedule = "cosine"
warmup = 100
clip_norm = 1
class_weights = "balanced"
start_from = "../runs/before"
start_fresh = ["head"]
precision = "bf16"
[parallel]
mesh = "auto"
)");
  EXPECT_EQ(recipe.data.series, std::vector<std::string>{"origin"});
  EXPECT_EQ(recipe.data.window, 168);
  EXPECT_EQ(recipe.data.horizon, 24);
  EXPECT_EQ(recipe.data.stride, 3);
  EXPECT_EQ(recipe.data.max_gap, 5400.5);
  EXPECT_EQ(recipe.data.season, 24);
  EXPECT_EQ(recipe.data.weight, "w");
  EXPECT_EQ(recipe.data.split.by, "time");
  EXPECT_EQ(recipe.model.heads, 4);
  EXPECT_EQ(recipe.train.rate_schedule, "cosine");
  EXPECT_EQ(recipe.train.warmup, 100);
  EXPECT_EQ(recipe.train.clip_norm, 1);
  EXPECT_EQ(recipe.train.class_weights, "balanced");
  EXPECT_EQ(recipe.train.start_from,
            std::filesystem::weakly_canonical(folder_.path() / "../runs/before").string());
  EXPECT_EQ(recipe.train.start_fresh, std::vector<std::string>{"head"});
  EXPECT_EQ(recipe.train.precision, "bf16");
  EXPECT_FALSE(recipe.parallel.mesh);
  EXPECT_EQ(parse(to_toml(recipe)), recipe);
  Recipe cnn = recipe;
  cnn.model = {"cnn", 32, 3, 0.1, 0};
  cnn.train.batch_norm_group = 16;
  cnn.data.split.by = "series";
  EXPECT_EQ(parse(to_toml(cnn)), cnn);
}

TEST_F(RecipeTest, WindowsAreSplitByTimeOrSeriesUnlessToldOtherwise) {
  const std::string bare = "[data]\npath = \"x\"\ntarget = \"y\"\nwindow = 8\nhorizon = 2\n";
  EXPECT_EQ(parse(bare + "time = \"t\"\n").data.split.by, "time");
  EXPECT_EQ(parse(bare + "series = [\"a\", \"b\"]\n").data.split.by, "series");
  EXPECT_EQ(parse(bare + "series = \"a\"\ntime = \"t\"\nsplit = {test = 0.2}\n").data.split.by, "time");
  EXPECT_EQ(parse(bare + "stride = 10\nsplit = {by = \"random\"}\n").data.split.by, "random");
  EXPECT_EQ(parse("[data]\npath = \"x\"\ntarget = \"y\"\ntime = \"t\"\n").data.split.by, "random");
  EXPECT_EQ(message(bare),
            "recipe.toml: data.time is missing: windows are split by time, so the column is needed that says "
            "when a row happened; or set data.series and split = {by = \"series\"}");
  EXPECT_EQ(message(bare + "time = \"t\"\nstride = 9\nsplit = {by = \"random\"}\n"),
            "recipe.toml:8: data.split.by = \"random\" with data.stride = 9 would put the same rows into "
            "several parts: use \"time\" or \"series\", or a stride of at least window + horizon = 10");
  EXPECT_EQ(
      message(std::string("[data]\npath = \"x\"\ntarget = \"y\"\nsplit = {by = \"series\"}\n")),
      "recipe.toml:4: data.split.by = \"series\" needs data.series: the columns that tell series apart");
}

TEST_F(RecipeTest, KeysThatMeanNothingHereSaySo) {
  const std::string data = "[data]\npath = \"x\"\ntarget = \"y\"\n";
  const std::string windows =
      "is used with windows only: set data.window to the rows that a sample sees, or "
      "leave it out";
  EXPECT_EQ(message(data + "stride = 2\n"), "recipe.toml:4: data.stride " + windows);
  EXPECT_EQ(message(data + "horizon = 2\n"), "recipe.toml:4: data.horizon " + windows);
  EXPECT_EQ(message(data + "season = 24\n"), "recipe.toml:4: data.season " + windows);
  EXPECT_EQ(message(data + "max_gap = 24\n"), "recipe.toml:4: data.max_gap " + windows);
  EXPECT_EQ(message(data, {"data.stride=2"}), "--set data.stride=2: data.stride " + windows);
  EXPECT_EQ(message(data + "series = \"a\"\n"),
            "recipe.toml:4: data.series is used with data.window, or with split = {by = \"series\"}, only");
  EXPECT_EQ(message(data + "window = 3\nseries = \"a\"\nmax_gap = 60\n"),
            "recipe.toml:6: data.max_gap needs data.time: the column that says how far apart rows are");
  EXPECT_EQ(message(data + "window = 3\ntime = \"t\"\nhorizon = 0\nfeatures = [\"a\", \"y\"]\n"),
            "recipe.toml:7: data.features holds the target \"y\", and data.horizon is 0: the model would be "
            "given the answer");
  EXPECT_EQ(parse(data + "window = 3\ntime = \"t\"\nfeatures = [\"a\", \"y\"]\n").data.features.size(), 2U);
  EXPECT_EQ(message(data + "weight = \"y\"\n"), "recipe.toml:4: data.weight is the target \"y\"");
  EXPECT_EQ(message(data + "time = \"y\"\n"), "recipe.toml:4: data.time is the target \"y\"");
  EXPECT_EQ(message(std::string(kGood) + "[model]\nheads = 2\n"),
            "recipe.toml:8: model.heads is not used by the mlp");
  EXPECT_EQ(message(std::string(kSeries) + "[model]\ntype = \"lstm\"\nheads = 2\n"),
            "recipe.toml:10: model.heads is not used by the lstm");
  EXPECT_EQ(message(std::string(kSeries) + "[model]\ntype = \"transformer\"\nheads = 3\n"),
            "recipe.toml:10: model.heads is 3, which doesn't divide model.width = 128");
  EXPECT_EQ(
      message(data + "[model]\ntype = \"gru\"\n"),
      "recipe.toml:5: model.type = \"gru\" needs series: set data.window to the rows that a sample sees "
      "(mlp and transformer take single rows)");
  EXPECT_EQ(message(std::string(kGood) + "batch_norm_group = 8\n"),
            "recipe.toml:7: train.batch_norm_group is not used by the mlp, which has no BatchNorm");
  EXPECT_EQ(message(std::string(kGood) + "batch_norm_group = 512\n"),
            "recipe.toml:7: train.batch_norm_group is 512, more than train.batch = 256");
  EXPECT_EQ(message(std::string(kGood) + "start_fresh = \"head\"\n"),
            "recipe.toml:7: train.start_fresh needs train.start_from: without it every layer begins with new "
            "weights");
  EXPECT_EQ(message(std::string(kGood) + "loss = \"mae\"\nclass_weights = \"balanced\"\n"),
            "recipe.toml:8: train.class_weights is for classes, and train.loss = \"mae\" is for numbers");
  EXPECT_EQ(message(std::string(kGood) + "class_weights = \"equal\"\n"),
            "recipe.toml:7: train.class_weights is \"equal\", expected one of balanced");
  EXPECT_EQ(message(std::string(kGood) + "rate_schedule = \"cosin\"\n"),
            "recipe.toml:7: train.rate_schedule is \"cosin\", expected one of none, cosine, linear, step, "
            "exponential (did you mean \"cosine\"?)");
}

TEST_F(RecipeTest, BadSettings) {
  EXPECT_EQ(message(kGood, {"train.steps"}),
            "--set train.steps: expected section.key=value, such as --set train.steps=5");
  EXPECT_EQ(message(kGood, {"data.target=delay"}),
            "--set data.target=delay: delay is not a TOML value; text needs quotes of its own: --set "
            "'data.target=\"delay\"'");
  EXPECT_EQ(message(kGood, {R"(data.split={by="tim"})"}).substr(0, 52),
            R"(--set data.split={by="tim"}: data.split.by is "tim",)");
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
  request.mesh = "auto";
  EXPECT_EQ(load_recipe(request).parallel.ranks, 2);
  EXPECT_FALSE(load_recipe(request).parallel.mesh);
  request.ranks.reset();
  request.mesh = "data=2,pipeline=2";
  EXPECT_EQ(load_recipe(request).parallel.mesh, (Mesh{2, 2, 1}));
  request.schedule = "zb-h1";
  EXPECT_EQ(load_recipe(request).parallel.schedule, "zb-h1");
  request.schedule = "zb-h3";
  EXPECT_NE(error_of([&] { load_recipe(request); }).find("zb-h"), std::string::npos);
  request.schedule.reset();
  request.mesh = "data=2,tensor=2";
  EXPECT_EQ(load_recipe(request).parallel.mesh, (Mesh{2, 1, 2}));
  request.settings = {"parallel.splits=['head: rows', 'block*:whole']"};
  EXPECT_EQ(load_recipe(request).parallel.splits, (SplitChoices{{"head", "rows"}, {"block*", "whole"}}));
  request.mesh = "data=2";
  EXPECT_SAYS(error_of([&] { load_recipe(request); }), "tensor=2");
  request.settings = {"parallel.splits='head'"};
  EXPECT_SAYS(error_of([&] { load_recipe(request); }), "head: rows");
  request.settings.clear();
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

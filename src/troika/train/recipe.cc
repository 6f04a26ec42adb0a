#include "troika/train/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "troika/train/recipe_reader.h"

namespace troika {
namespace {

using internal::RecipeSource;
using internal::SectionReader;

constexpr const char* kNotYet = "is not in this version";
constexpr int64_t kMostRanks = 1024;

SplitRecipe read_split(const RecipeSource& source, const toml::table* table) {
  SplitRecipe split;
  SectionReader in(source, table, "data.split");
  in.choice("by", {"random", "time"}, {"series"}, split.by);
  in.number("validation", 0, 0.9, split.validation);
  in.number("test", 0, 0.9, split.test);
  double train = 1 - split.validation - split.test;
  in.number("train", 0, 1, train);
  if (std::abs(train + split.validation + split.test - 1) > 1e-9 || train < 0.01) {
    in.fail_at("train",
               fmt::format("{} + validation {} + test {} should be 1, with something left to train on", train,
                           split.validation, split.test));
  }
  in.finish();
  return split;
}

DataRecipe read_data(const RecipeSource& source, const Path& folder) {
  DataRecipe data;
  SectionReader in(source, source.root()["data"].as_table(), "data");
  in.text("path", data.path);
  in.texts("target", true, data.targets);
  in.texts("features", false, data.features);
  in.text("time", data.time);
  for (const char* key : {"series", "window", "horizon", "stride"}) in.refuse(key, kNotYet);
  data.split = read_split(source, in.table("split", false));
  in.finish();
  if (data.path.empty()) in.fail_at("path", "is missing: the folder that `troika pack` wrote");
  if (data.targets.empty()) in.fail_at("target", "is missing: the column to predict");
  for (const std::string& target : data.targets) {
    if (std::ranges::count(data.features, target)) {
      in.fail_at("features",
                 fmt::format("holds the target \"{}\": the model would be given the answer", target));
    }
  }
  if (data.split.by == "time" && data.time.empty()) {
    in.fail_at("time", "is missing: split.by = \"time\" needs the column that says when a row happened");
  }
  data.path = std::filesystem::absolute(folder / data.path).lexically_normal().string();
  return data;
}

ModelRecipe read_model(const RecipeSource& source) {
  ModelRecipe model;
  SectionReader in(source, source.root()["model"].as_table(), "model");
  in.choice("type", {"mlp"}, {"lstm", "gru", "tcn", "transformer", "gpt", "cnn"}, model.type);
  in.integer("width", 1, 1 << 20, model.width);
  in.integer("layers", 0, 10000, model.layers);
  in.number("dropout", 0, 0.99, model.dropout);
  in.refuse("heads", "is not used by the mlp");
  in.finish();
  return model;
}

TrainRecipe read_train(const RecipeSource& source) {
  TrainRecipe train;
  SectionReader in(source, source.root()["train"].as_table(), "train");
  in.integer("epochs", 1, INT64_MAX, train.epochs);
  in.integer("steps", 1, INT64_MAX, train.steps);
  in.integer("batch", 1, int64_t{1} << 40, train.batch);
  in.choice("optimizer", {"sgd", "adam", "adamw"}, {}, train.optimizer);
  in.number("learning_rate", 0, 1e6, train.learning_rate);
  in.number("weight_decay", 0, 1e6, train.weight_decay);
  in.choice("loss", {"mse", "mae", "huber", "binary_cross_entropy", "cross_entropy"}, {}, train.loss);
  int64_t seed = 0;
  in.integer("seed", 0, INT64_MAX, seed);
  train.seed = static_cast<uint64_t>(seed);
  in.choice("precision", {"float32", "float64"}, {"bf16"}, train.precision);
  in.integer("log_every", 1, INT64_MAX, train.log_every);
  in.integer("checkpoint_every", 0, INT64_MAX, train.checkpoint_every);
  in.integer("early_stopping", 0, INT64_MAX, train.early_stopping);
  std::string device = "cpu";
  in.choice("device", {"cpu"}, {"cuda"}, device);
  std::string rate_schedule = "none";
  in.choice("rate_schedule", {"none"}, {"cosine", "linear", "step", "exponential"}, rate_schedule);
  for (const char* key : {"warmup", "clip_norm", "batch_norm_group"}) in.refuse(key, kNotYet);
  in.finish();
  if (train.epochs && train.steps) in.fail_at("steps", "stands beside train.epochs; keep one of them");
  if (!train.epochs && !train.steps) train.epochs = 10;
  return train;
}

std::optional<Mesh> read_mesh(const RecipeSource& source, const toml::table* table) {
  if (table == nullptr) return std::nullopt;
  SectionReader in(source, table, "parallel.mesh");
  int64_t data = 1, pipeline = 1, tensor = 1;
  in.integer("data", 1, kMostRanks, data);
  in.integer("pipeline", 1, kMostRanks, pipeline);
  in.integer("tensor", 1, kMostRanks, tensor);
  in.finish();
  return Mesh{static_cast<int>(data), static_cast<int>(pipeline), static_cast<int>(tensor)};
}

void require_data_parallel(const Mesh& mesh) {
  if (mesh.pipeline == 1 && mesh.tensor == 1) return;
  fail_usage("mesh {}: pipeline and tensor parallelism are not in this version; use data={}", to_string(mesh),
             mesh.ranks());
}

ParallelRecipe read_parallel(const RecipeSource& source) {
  ParallelRecipe parallel;
  SectionReader in(source, source.root()["parallel"].as_table(), "parallel");
  in.integer_or_auto("ranks", 1, kMostRanks, parallel.ranks);
  parallel.mesh = read_mesh(source, in.table("mesh", true));
  in.integer("micro_batches", 1, 1 << 20, parallel.micro_batches);
  in.choice("weights", {"shared", "replicated"}, {}, parallel.weights);
  in.integer("threads_per_rank", 1, kMostRanks, parallel.threads_per_rank);
  in.number("deadline", 0.1, 1e6, parallel.deadline);
  std::string schedule = "none";
  in.choice("schedule", {"none"},
            {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "pipedream", "pipedream-2bw"}, schedule);
  for (const char* key : {"cuts", "recompute", "sync", "chunks", "flush_every", "vertical_sync"}) {
    in.refuse(key, kNotYet);
  }
  in.finish();
  return parallel;
}

void check_mesh(const ParallelRecipe& parallel) {
  if (!parallel.mesh) return;
  if (parallel.ranks) require_ranks(*parallel.mesh, static_cast<int>(*parallel.ranks));
  require_data_parallel(*parallel.mesh);
}

}  // namespace

Recipe parse_recipe(const Path& path, const std::vector<std::string>& settings) {
  RecipeSource source(path, settings);
  // "--set train.steps=5" is meant to replace the file's epochs, not to contradict it.
  if (source.from_settings("train.steps") != source.from_settings("train.epochs")) {
    source.erase("train", source.from_settings("train.steps") ? "epochs" : "steps");
  }
  SectionReader in(source, &source.root(), "");
  for (const char* section : {"data", "model", "train", "parallel"}) in.table(section, false);
  in.finish();
  Recipe recipe;
  recipe.data = read_data(source, path.parent_path());
  recipe.model = read_model(source);
  recipe.train = read_train(source);
  recipe.parallel = read_parallel(source);
  return recipe;
}

Recipe load_recipe(const RecipeRequest& request) {
  Recipe recipe = parse_recipe(request.recipe, request.settings);
  ParallelRecipe& parallel = recipe.parallel;
  if (request.ranks) {
    if (*request.ranks < 1 || *request.ranks > kMostRanks) {
      fail_usage("--ranks {}: expected 1 to {}", *request.ranks, kMostRanks);
    }
    parallel.ranks = *request.ranks;
    parallel.mesh.reset();
  }
  if (request.mesh) {
    parallel.mesh = parse_mesh(*request.mesh);
    if (!request.ranks) parallel.ranks.reset();
  }
  if (request.micro_batches) {
    if (*request.micro_batches < 1)
      fail_usage("--micro-batches {}: expected at least 1", *request.micro_batches);
    parallel.micro_batches = *request.micro_batches;
  }
  if (request.weights) {
    if (*request.weights != "shared" && *request.weights != "replicated") {
      fail_usage("--weights {}: expected shared or replicated", *request.weights);
    }
    parallel.weights = *request.weights;
  }
  if (request.deadline) parallel.deadline = *request.deadline;
  check_mesh(parallel);
  return recipe;
}

Optimizer optimizer_of(const TrainRecipe& recipe) {
  Optimizer optimizer;
  optimizer.kind = recipe.optimizer == "sgd"    ? Optimizer::Kind::sgd
                   : recipe.optimizer == "adam" ? Optimizer::Kind::adam
                                                : Optimizer::Kind::adamw;
  optimizer.learning_rate = recipe.learning_rate;
  optimizer.weight_decay = recipe.weight_decay;
  return optimizer;
}

Path default_run_dir(const Path& recipe) {
  const Path absolute = std::filesystem::absolute(recipe).lexically_normal();
  const std::string name = absolute.filename() == "recipe.toml" ? absolute.parent_path().filename().string()
                                                                : absolute.stem().string();
  return Path("runs") / (name.empty() ? "run" : name);
}

}  // namespace troika

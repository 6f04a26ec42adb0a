#include "troika/train/recipe_sections.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "troika/base/text.h"
#include "troika/data/text_data.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/schedule_file.h"

namespace troika::internal {
namespace {

constexpr const char* kNotYet = "is not in this version";
constexpr int64_t kMostRows = int64_t{1} << 40;
constexpr int64_t kMostChunks = 64;  // stages per lane

const toml::table* section(const RecipeSource& source, const char* name) {
  return source.root()[name].as_table();
}

std::string absolute(const Path& folder, const std::string& path) {
  return std::filesystem::absolute(folder / path).lexically_normal().string();
}

SplitRecipe read_split(const RecipeSource& source, const toml::table* table, const DataRecipe& data,
                       bool text) {
  SplitRecipe split;
  // Windows that overlap would be in several parts of a random split.
  if (data.window > 0) split.by = data.time.empty() && !data.series.empty() ? "series" : "time";
  if (text) split.by = "order";
  SectionReader in(source, table, "data.split");
  in.choice("by", {"random", "time", "series", "order"}, {}, split.by);
  in.number("validation", 0, 0.9, split.validation);
  in.number("test", 0, 0.9, split.test);
  double train = 1 - split.validation - split.test;
  in.number("train", 0, 1, train);
  if (std::abs(train + split.validation + split.test - 1) > 1e-9 || train < 0.01) {
    in.fail_at("train",
               fmt::format("{:.6g} + validation {} + test {} should be 1, with something left to train on",
                           train, split.validation, split.test));
  }
  in.finish();
  if (split.by == "series" && data.series.empty()) {
    in.fail_at("by", "= \"series\" needs data.series: the columns that tell series apart");
  }
  if (split.by == "order" && data.window == 0) {
    in.fail_at("by", "= \"order\" cuts series in the order of their rows, and needs data.window");
  }
  if (data.window > 0 && split.by == "random" && data.stride < data.window + data.horizon) {
    in.fail_at("by",
               fmt::format("= \"random\" with data.stride = {} would put the same rows into several parts: "
                           "use \"time\" or \"series\", or a stride of at least window + horizon = {}",
                           data.stride, data.window + data.horizon));
  }
  return split;
}

void check_names(const SectionReader& in, const DataRecipe& data) {
  const bool past_is_known = data.window > 0 && data.horizon > 0;
  for (const std::string& target : data.targets) {
    if (!past_is_known && std::ranges::count(data.features, target)) {
      in.fail_at("features", fmt::format("holds the target \"{}\"{}: the model would be given the answer",
                                         target, data.window > 0 ? ", and data.horizon is 0" : ""));
    }
    if (target == data.time) in.fail_at("time", fmt::format("is the target \"{}\"", target));
    if (target == data.weight) in.fail_at("weight", fmt::format("is the target \"{}\"", target));
  }
  if (!data.time.empty() && std::ranges::count(data.series, data.time)) {
    in.fail_at("series", fmt::format("holds data.time, \"{}\"", data.time));
  }
}

/// A text's one target is its next byte, and its order is its own.
void check_text(const SectionReader& in, DataRecipe& data) {
  const auto is_or_absent = [](const std::vector<std::string>& names, const char* name) {
    return names.empty() || (names.size() == 1 && names[0] == name);
  };
  const char* const own =
      "is of tables, and model.type = \"gpt\" reads text, of which it predicts the next byte";
  in.only_if(is_or_absent(data.targets, kByteColumn), "target", own);
  in.only_if(is_or_absent(data.series, kFileColumn), "series",
             fmt::format("{}; its series are its files, \"{}\"", own, kFileColumn));
  for (const char* key : {"features", "time", "weight", "season", "max_gap"}) in.only_if(false, key, own);
  in.only_if(data.horizon == 1, "horizon", own);
  if (data.window == 0) {
    in.fail_at("window", "is missing: how many bytes model.type = \"gpt\" sees in a sample, 128 for example");
  }
  data.targets = {kByteColumn};
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

}  // namespace

bool reads_text(const std::string& model_type) { return model_type == "gpt"; }

bool has_batch_norm(const std::string& model_type) { return model_type == "cnn"; }

DataRecipe read_data(const RecipeSource& source, const Path& folder, bool text) {
  DataRecipe data;
  SectionReader in(source, section(source, "data"), "data");
  in.text("path", data.path);
  in.texts("target", true, data.targets);
  in.texts("features", false, data.features);
  in.text("time", data.time);
  in.texts("series", true, data.series);
  in.integer("window", 0, kMostRows, data.window);
  in.integer("horizon", 0, kMostRows, data.horizon);
  if (text) data.stride = std::max<int64_t>(1, data.window);  // each byte is predicted once
  in.integer("stride", 1, kMostRows, data.stride);
  in.number("max_gap", 0, 1e12, data.max_gap);
  in.integer("season", 1, kMostRows, data.season);
  in.text("weight", data.weight);
  const toml::table* const split = in.table("split", false);
  in.finish();
  if (data.path.empty()) in.fail_at("path", "is missing: the folder that `troika pack` wrote");
  if (text) check_text(in, data);
  if (data.targets.empty()) {
    in.fail_at("target",
               "is missing: the column to predict (model.type = \"gpt\", which reads text, needs none)");
  }
  for (const char* key : {"horizon", "stride", "max_gap", "season"}) {
    in.only_if(data.window > 0, key,
               "is used with windows only: set data.window to the rows that a sample sees, or leave it out");
  }
  in.only_if(!data.time.empty(), "max_gap", "needs data.time: the column that says how far apart rows are");
  data.split = read_split(source, split, data, text);
  in.only_if(data.window > 0 || data.split.by == "series", "series",
             "is used with data.window, or with split = {by = \"series\"}, only");
  check_names(in, data);
  if (data.split.by == "time" && data.time.empty()) {
    in.fail_at("time", data.window > 0 && split == nullptr
                           ? "is missing: windows are split by time, so the column is needed that says when "
                             "a row happened; or set data.series and split = {by = \"series\"}"
                           : "is missing: split.by = \"time\" needs the column that says when a row "
                             "happened");
  }
  data.path = absolute(folder, data.path);
  return data;
}

ModelRecipe read_model(const RecipeSource& source) {
  ModelRecipe model;
  SectionReader in(source, section(source, "model"), "model");
  in.choice("type", {"mlp", "lstm", "gru", "tcn", "transformer", "cnn", "gpt"}, {}, model.type);
  in.integer("width", 1, 1 << 20, model.width);
  in.integer("layers", 0, 10000, model.layers);
  in.number("dropout", 0, 0.99, model.dropout);
  in.integer("heads", 0, 1 << 20, model.heads);
  in.finish();
  in.only_if(model.type == "transformer" || model.type == "gpt", "heads",
             fmt::format("is not used by the {}", model.type));
  if (model.heads > 0 && model.width % model.heads != 0) {
    in.fail_at("heads",
               fmt::format("is {}, which doesn't divide model.width = {}", model.heads, model.width));
  }
  return model;
}

TrainRecipe read_train(const RecipeSource& source, const Path& folder) {
  TrainRecipe train;
  SectionReader in(source, section(source, "train"), "train");
  in.integer("epochs", 1, INT64_MAX, train.epochs);
  in.integer("steps", 1, INT64_MAX, train.steps);
  in.integer("batch", 1, int64_t{1} << 40, train.batch);
  in.choice("optimizer", {"sgd", "adam", "adamw"}, {}, train.optimizer);
  in.number("learning_rate", 0, 1e6, train.learning_rate);
  in.choice("rate_schedule", {"none", "cosine", "linear", "step", "exponential"}, {}, train.rate_schedule);
  in.integer("warmup", 0, INT64_MAX, train.warmup);
  in.number("weight_decay", 0, 1e6, train.weight_decay);
  in.number("clip_norm", 0, 1e12, train.clip_norm);
  in.choice("clip_by", {"global", "stage"}, {}, train.clip_by);
  in.choice("loss", {"mse", "mae", "huber", "binary_cross_entropy", "cross_entropy"}, {}, train.loss);
  in.choice("class_weights", {"balanced"}, {}, train.class_weights);
  in.text("start_from", train.start_from);
  in.texts("start_fresh", true, train.start_fresh);
  in.integer("batch_norm_group", 0, int64_t{1} << 40, train.batch_norm_group);
  int64_t seed = 0;
  in.integer("seed", 0, INT64_MAX, seed);
  train.seed = static_cast<uint64_t>(seed);
  in.choice("precision", {"float32", "float64", "bf16"}, {}, train.precision);
  in.integer("log_every", 1, INT64_MAX, train.log_every);
  in.integer("checkpoint_every", 0, INT64_MAX, train.checkpoint_every);
  in.integer("early_stopping", 0, INT64_MAX, train.early_stopping);
  std::string device = "cpu";
  in.choice("device", {"cpu"}, {"cuda"}, device);
  in.finish();
  if (train.epochs && train.steps) in.fail_at("steps", "stands beside train.epochs; keep one of them");
  if (!train.epochs && !train.steps) train.epochs = 10;
  in.only_if(train.loss != "mse" && train.loss != "mae" && train.loss != "huber", "class_weights",
             fmt::format("is for classes, and train.loss = \"{}\" is for numbers", train.loss));
  in.only_if(!train.start_from.empty(), "start_fresh",
             "needs train.start_from: without it every layer begins with new weights");
  if (train.batch_norm_group > train.batch) {
    in.fail_at("batch_norm_group",
               fmt::format("is {}, more than train.batch = {}", train.batch_norm_group, train.batch));
  }
  if (!train.start_from.empty()) train.start_from = absolute(folder, train.start_from);
  return train;
}

namespace {

/// "pattern: way", in order.
SplitChoices read_splits(SectionReader& in) {
  std::vector<std::string> texts;
  in.texts("splits", true, texts);
  SplitChoices choices;
  for (const std::string& text : texts) {
    const size_t colon = text.rfind(':');
    const size_t way = text.find_first_not_of(' ', colon == std::string::npos ? colon : colon + 1);
    if (colon == 0 || way == std::string::npos) {
      in.fail_at("splits",
                 fmt::format("has \"{}\"; expected a layer and how it is split, as \"head: rows\" or "
                             "\"block*: whole\"",
                             printable(text, 40)));
    }
    choices.emplace_back(text.substr(0, colon), text.substr(way));
  }
  return choices;
}

}  // namespace

ParallelRecipe read_parallel(const RecipeSource& source, const Path& folder) {
  ParallelRecipe parallel;
  SectionReader in(source, section(source, "parallel"), "parallel");
  in.integer_or_auto("ranks", 1, kMostRanks, parallel.ranks);
  parallel.mesh = read_mesh(source, in.table("mesh", true));
  in.integer("micro_batches", 1, 1 << 20, parallel.micro_batches);
  in.choice("weights", {"shared", "replicated"}, {}, parallel.weights);
  in.integer("threads_per_rank", 1, kMostRanks, parallel.threads_per_rank);
  in.number("deadline", 0.1, 1e6, parallel.deadline);
  if (in.has("schedule")) {
    std::string& schedule = parallel.schedule.emplace();
    in.text("schedule", schedule);
    if (is_schedule_file(schedule)) {
      schedule = absolute(folder, schedule);
    } else if (!is_in_catalogue(schedule)) {
      in.fail_at("schedule", fmt::format("is \"{}\"{}; the schedules are {}, or give a file's path",
                                         printable(schedule, 40), did_you_mean(schedule, catalogue_names()),
                                         fmt::join(catalogue_names(), ", ")));
    }
  }
  in.integer("chunks", 0, kMostChunks, parallel.chunks);
  if (in.is_text("cuts")) {
    in.choice("cuts", {"time", "parameters"}, {}, parallel.cut_by);
  } else {
    in.texts("cuts", false, parallel.cuts);
  }
  in.integer("memory_limit_bytes", 0, INT64_MAX, parallel.memory_limit_bytes);
  if (in.is_list("recompute")) {
    in.texts("recompute", false, parallel.recompute_layers);
  } else {
    in.choice("recompute", {"never", "always", "except_last"}, {}, parallel.recompute);
  }
  parallel.splits = read_splits(in);
  in.integer("flush_every", 0, 1 << 20, parallel.flush_every);
  in.boolean("vertical_sync", parallel.vertical_sync);
  in.refuse("sync", kNotYet);
  in.finish();
  return parallel;
}

void check_together(const RecipeSource& source, const Recipe& recipe) {
  const std::string& type = recipe.model.type;
  const SectionReader model(source, section(source, "model"), "model");
  if (recipe.data.window == 0 && (type == "lstm" || type == "gru" || type == "tcn" || type == "cnn")) {
    model.fail_at("type", fmt::format("= \"{}\" needs series: set data.window to the rows that a sample sees "
                                      "(mlp and transformer take single rows)",
                                      type));
  }
  const SectionReader train(source, section(source, "train"), "train");
  train.only_if(has_batch_norm(type), "batch_norm_group",
                fmt::format("is not used by the {}, which has no BatchNorm", type));
  if (!reads_text(type)) return;
  train.only_if(false, "class_weights",
                fmt::format("is not used by the {}: each byte counts the same", type));
  train.only_if(recipe.train.loss.empty() || recipe.train.loss == "cross_entropy", "loss",
                fmt::format("of the {} is cross_entropy", type));
}

}  // namespace troika::internal

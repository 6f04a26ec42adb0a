#include <fmt/ranges.h>

#include "troika/train/recipe.h"

namespace troika {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string quoted(const std::vector<std::string>& names) {
  std::vector<std::string> each;
  for (const std::string& name : names) each.push_back(quoted(name));
  return fmt::format("[{}]", fmt::join(each, ", "));
}

std::string or_auto(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "\"auto\"";
}

}  // namespace

std::string to_toml(const Recipe& recipe) {
  std::string out;
  const auto line = [&out]<typename T>(const char* key, const T& value) {
    out += fmt::format("{} = {}\n", key, value);
  };
  const DataRecipe& data = recipe.data;
  out += "[data]\n";
  line("path", quoted(data.path));
  line("target", data.targets.size() == 1 ? quoted(data.targets[0]) : quoted(data.targets));
  if (!data.features.empty()) line("features", quoted(data.features));
  if (!data.time.empty()) line("time", quoted(data.time));
  if (!data.series.empty()) line("series", quoted(data.series));
  if (data.window > 0) {
    line("window", data.window);
    line("horizon", data.horizon);
    line("stride", data.stride);
    if (data.max_gap > 0) line("max_gap", data.max_gap);
    if (data.season) line("season", *data.season);
  }
  if (!data.weight.empty()) line("weight", quoted(data.weight));
  line("split", fmt::format("{{by = {}, validation = {}, test = {}}}", quoted(data.split.by),
                            data.split.validation, data.split.test));
  const ModelRecipe& model = recipe.model;
  out += "\n[model]\n";
  line("type", quoted(model.type));
  line("width", model.width);
  line("layers", model.layers);
  line("dropout", model.dropout);
  if (model.heads > 0) line("heads", model.heads);
  const TrainRecipe& train = recipe.train;
  out += "\n[train]\n";
  if (train.epochs) line("epochs", *train.epochs);
  if (train.steps) line("steps", *train.steps);
  line("batch", train.batch);
  line("optimizer", quoted(train.optimizer));
  line("learning_rate", train.learning_rate);
  line("rate_schedule", quoted(train.rate_schedule));
  line("warmup", train.warmup);
  line("weight_decay", train.weight_decay);
  line("clip_norm", train.clip_norm);
  if (train.clip_by != "global") line("clip_by", quoted(train.clip_by));
  if (!train.loss.empty()) line("loss", quoted(train.loss));
  if (!train.class_weights.empty()) line("class_weights", quoted(train.class_weights));
  if (!train.start_from.empty()) line("start_from", quoted(train.start_from));
  if (!train.start_fresh.empty()) line("start_fresh", quoted(train.start_fresh));
  if (train.batch_norm_group > 0) line("batch_norm_group", train.batch_norm_group);
  line("seed", train.seed);
  line("precision", quoted(train.precision));
  line("log_every", train.log_every);
  line("checkpoint_every", train.checkpoint_every);
  line("early_stopping", train.early_stopping);
  const ParallelRecipe& parallel = recipe.parallel;
  out += "\n[parallel]\n";
  line("ranks", or_auto(parallel.ranks));
  if (parallel.mesh) {
    line("mesh", fmt::format("{{data = {}, pipeline = {}, tensor = {}}}", parallel.mesh->data,
                             parallel.mesh->pipeline, parallel.mesh->tensor));
  }
  line("micro_batches", parallel.micro_batches);
  if (parallel.schedule) line("schedule", quoted(*parallel.schedule));
  if (parallel.chunks != 0) line("chunks", parallel.chunks);
  if (!parallel.cuts.empty()) {
    line("cuts", quoted(parallel.cuts));
  } else if (!parallel.cut_by.empty()) {
    line("cuts", quoted(parallel.cut_by));
  }
  if (parallel.memory_limit_bytes != 0) line("memory_limit_bytes", parallel.memory_limit_bytes);
  line("recompute",
       parallel.recompute_layers.empty() ? quoted(parallel.recompute) : quoted(parallel.recompute_layers));
  if (!parallel.splits.empty()) {
    std::vector<std::string> texts;
    for (const auto& [pattern, way] : parallel.splits) texts.push_back(pattern + ": " + way);
    line("splits", quoted(texts));
  }
  if (parallel.flush_every != 0) line("flush_every", parallel.flush_every);
  if (parallel.vertical_sync) line("vertical_sync", "true");
  line("weights", quoted(parallel.weights));
  if (parallel.threads_per_rank) line("threads_per_rank", *parallel.threads_per_rank);
  line("deadline", parallel.deadline);
  return out;
}

}  // namespace troika

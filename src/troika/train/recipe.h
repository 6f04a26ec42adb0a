// Recipe: everything a training run is made of, as a value, and its text form (TOML; docs/recipe.md lists the
// keys). Values and pure functions; thread-safe as such.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troika/base/file.h"
#include "troika/base/mesh.h"
#include "troika/base/request.h"
#include "troika/parallel/optimizer.h"
#include "troika/parallel/tensor/split_choices.h"

namespace troika {

struct SplitRecipe {
  // "random" | "time" | "series" | "order"; the default with windows is "time" or "series", of a text "order"
  std::string by = "random";
  double validation = 0.1;
  double test = 0.1;  // train is the rest
  bool operator==(const SplitRecipe&) const = default;
};

struct DataRecipe {
  std::string path;                   // the dataset's folder; absolute once parsed
  std::vector<std::string> targets;   // one, or several numbers for a regression; of a text "byte"
  std::vector<std::string> features;  // empty: by default, as plan_features says (encoder.h)
  std::string time;                 // the column that orders the rows, for split.by = "time" and for windows
  std::vector<std::string> series;  // the columns that tell series apart
  int64_t window = 0;               // rows that a sample sees; 0: a row is a sample
  int64_t horizon = 1;              // with a window: rows after it to predict; 0: the window's own last one
  int64_t stride = 1;               // rows between the starts of two windows
  double max_gap = 0;               // the largest step of time in a window, in seconds; 0: 1.5 x the median
  std::optional<int64_t>
      season;          // rows of a period, for the seasonal baseline; absent: a day, if steps are known
  std::string weight;  // a column of sample weights; "": 1 each
  SplitRecipe split;
  bool operator==(const DataRecipe&) const = default;
};

struct ModelRecipe {
  std::string type = "mlp";
  int64_t width = 128;
  int64_t layers = 2;  // hidden ones
  double dropout = 0;
  int64_t heads = 0;  // transformer, gpt; 0: one for each 16 of width, at least 1
  bool operator==(const ModelRecipe&) const = default;
};

struct TrainRecipe {
  std::optional<int64_t> epochs;  // exactly one of the two is set
  std::optional<int64_t> steps;
  int64_t batch = 256;              // global: samples of one update, over all ranks
  std::string optimizer = "adamw";  // "sgd" | "adam" | "adamw"
  double learning_rate = 1e-3;
  std::string rate_schedule = "none";  // "none" | "cosine" | "linear" | "step" | "exponential"
  int64_t warmup = 0;                  // steps in which the learning rate grows from 0
  double weight_decay = 0;             // of matrices; biases and norms have none
  double clip_norm = 0;                // the largest norm of the gradient; 0: any
  std::string class_weights;           // "balanced": each class counts the same in all; "": each sample
  std::string start_from;  // a safetensors file or a run whose weights to begin with; absolute once parsed
  std::vector<std::string> start_fresh;  // layers that begin with new weights all the same
  int64_t batch_norm_group = 0;          // samples that BatchNorm normalises together; 0: the whole batch
  std::string clip_by = "global";        // the norm's parameters: all of them, or each "stage"'s by itself
  std::string loss;                      // "": by the target's type
  uint64_t seed = 0;
  std::string precision = "float32";  // "float32" | "float64" | "bf16": float32 with products in bfloat16
  int64_t log_every = 50;
  int64_t checkpoint_every = 0;  // steps; 0: at the end of every epoch only
  int64_t early_stopping = 0;    // epochs without a better validation loss; 0: off
  bool operator==(const TrainRecipe&) const = default;
};

struct ParallelRecipe {
  std::optional<int64_t> ranks;  // absent: "auto"
  std::optional<Mesh> mesh;      // absent: "auto", which is data = ranks
  int64_t micro_batches = 1;
  // Of the catalogue, or a file's path (absolute once parsed); absent: 1f1b. With a pipeline only, like
  // chunks and cuts.
  std::optional<std::string> schedule;
  int64_t chunks = 0;             // stages per lane; 0: the schedule's own number
  std::vector<std::string> cuts;  // layers that begin stages 1, 2, ...; empty: stages are balanced by cut_by
  // "time" | "parameters"; "": time, but parameters where the result depends on the cuts (asynchronous).
  std::string cut_by;
  int64_t memory_limit_bytes = 0;             // of what a rank's stages take; 0: any
  std::string recompute = "never";            // of whole stages: "never" | "always" | "except_last"
  std::vector<std::string> recompute_layers;  // of these layers by themselves, by pattern; else never
  SplitChoices splits;             // over tensor ranks; layers that no pattern fits are split by the planner
  int64_t flush_every = 0;         // asynchronous: steps of a window; 0: to the next evaluation or checkpoint
  bool vertical_sync = false;      // pipedream: all stages use the first one's version of the weights
  std::string weights = "shared";  // "shared" | "replicated"
  std::optional<int64_t> threads_per_rank;  // absent: usable cores / ranks, at least 1
  double deadline = 30;                     // seconds
  bool operator==(const ParallelRecipe&) const = default;
};

struct Recipe {
  DataRecipe data;
  ModelRecipe model;
  TrainRecipe train;
  ParallelRecipe parallel;
  bool operator==(const Recipe&) const = default;
};

/// Reads a recipe; `settings` are "key=value" with a dotted key and a TOML literal, and go before what the
/// file says (train.steps replaces train.epochs and the other way round). A relative path is relative to the
/// recipe's folder. Throws UsageError naming file, line and key for anything unknown (with the nearest
/// name), unused, of another type, out of range, or not in this version.
Recipe parse_recipe(const Path& path, const std::vector<std::string>& settings = {});

/// parse_recipe, then the overrides of the command line.
Recipe load_recipe(const RecipeRequest& request);

/// The recipe in full, defaults included; parse_recipe gives back an equal one.
std::string to_toml(const Recipe& recipe);

/// The optimizer with its numbers.
Optimizer optimizer_of(const TrainRecipe& recipe);

/// Where a run goes if nothing is said: runs/<the recipe's file name>, or its folder's if that is
/// recipe.toml.
Path default_run_dir(const Path& recipe);

}  // namespace troika

// Workload: everything a run needs, opened and checked before anything is written. Shared by train, verify
// and the demo, so that they all mean the same thing by a recipe. Threading: a value; const access from any
// thread.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "troika/data/dataset.h"
#include "troika/data/source.h"
#include "troika/parallel/replica.h"
#include "troika/train/encoder.h"
#include "troika/train/loss.h"
#include "troika/train/pipeline_plan.h"
#include "troika/train/recipe.h"
#include "troika/train/sample_weights.h"
#include "troika/train/stage_plan.h"

namespace troika {

struct ModelShape;

/// What weights, inputs and losses are computed in.
inline at::ScalarType dtype_of(const TrainRecipe& train) {
  return train.precision == "float64" ? at::kDouble : at::kFloat;
}

struct Workload {
  Recipe recipe;  // with ranks, mesh and threads_per_rank decided
  bool ranks_were_auto = false;
  Dataset dataset;
  Split split;
  FeaturePlan features;
  LossKind loss_kind = LossKind::mse;
  Loss loss;
  SampleWeights weights;
  std::vector<Layer> layers;
  std::optional<PipelinePlan> pipeline;           // of several stages, or recomputed ones
  std::shared_ptr<const TensorPlan> tensor_plan;  // over several tensor ranks, else null
  std::optional<ModelProfile> profile;            // once somebody has asked for it
  int64_t train_samples = 0;                      // rows, or with windows windows

  int ranks() const { return static_cast<int>(*recipe.parallel.ranks); }
  const Mesh& mesh() const { return *recipe.parallel.mesh; }
  bool is_asynchronous() const { return pipeline && pipeline->options.window; }
  /// The first layer of each stage.
  std::vector<int64_t> starts() const {
    return pipeline ? pipeline->options.starts : std::vector<int64_t>{0};
  }
  std::vector<int> lanes_of_stages() const {
    return pipeline ? pipeline->options.schedule.lane_of_stage : std::vector<int>{0};
  }
  std::string schedule() const { return pipeline ? pipeline->schedule : "none"; }
  int64_t steps_per_epoch() const { return (train_samples + recipe.train.batch - 1) / recipe.train.batch; }
  int64_t total_steps() const {
    return recipe.train.steps ? *recipe.train.steps : *recipe.train.epochs * steps_per_epoch();
  }
  /// Consecutive samples that stay on one rank and in one micro-batch; the `unit` of piece_of.
  int64_t piece_unit() const { return std::max<int64_t>(1, recipe.train.batch_norm_group); }
  at::ScalarType dtype() const { return dtype_of(recipe.train); }
};

/// The most ranks that `recipe` can use on this machine: the usable cores, not more than a global batch has
/// samples, or groups of a BatchNorm.
int64_t most_ranks(const Recipe& recipe);

/// Decides what is "auto" without a trial (ranks: most_ranks; threads: the cores that each rank gets). Throws
/// UsageError for a mesh that isn't the number of ranks.
void decide_parallel(Recipe& recipe);

/// The parts of a dataset as the recipe splits it; with windows their first rows. Throws Error or UsageError.
Split split_samples(const Dataset& dataset, const Recipe& recipe);

/// Opens the dataset, splits it, plans the features and chooses loss, weights and layers. Throws Error or
/// UsageError.
Workload prepare(const Recipe& recipe);

/// What a model is built for that reads inputs as `plan` makes them.
ModelShape model_shape(const FeaturePlan& plan, LossKind loss);

ReplicaOptions replica_options(const Workload& work);

/// The source of the training rows, in an order by train.seed; one reader per rank.
std::unique_ptr<BatchSource> open_training_source(const Workload& work, int readers);

/// Inputs {floats, categories} of rows, the floats as `dtype`; needs no target. `span` as in encode_inputs.
Tensors make_inputs(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows,
                    at::ScalarType dtype, int64_t span = 0);

/// Rows as a batch: inputs, the target as the loss wants it, and the samples' weights (float64) if they have
/// any. `first_sample` is the first one's place in the global batch.
Batch make_batch(const Workload& work, const RowBuffer& rows, int64_t first_sample = 0);

/// Where step `step` (from 0) lies: the epoch, and its positions within it. The last batch of an epoch may be
/// smaller.
struct StepPlace {
  int64_t epoch = 0;
  Range positions;
};
StepPlace place_of_step(const Workload& work, int64_t step);

/// Of an asynchronous schedule: how many steps a window has that begins with step `first`: up to the next
/// evaluation or checkpoint. The recipe alone says so, so that a resumed run drains where an unbroken one
/// does.
int64_t window_steps(const Workload& work, int64_t first);

}  // namespace troika

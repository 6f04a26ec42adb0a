// Workload: everything a run needs, opened and checked before anything is written. Shared by train, verify
// and the demo, so that they all mean the same thing by a recipe. Threading: a value; const access from any
// thread.
#pragma once

#include <string>
#include <vector>

#include "troika/data/dataset.h"
#include "troika/data/source.h"
#include "troika/parallel/replica.h"
#include "troika/train/encoder.h"
#include "troika/train/loss.h"
#include "troika/train/recipe.h"

namespace troika {

struct Workload {
  Recipe recipe;  // with ranks, mesh and threads_per_rank decided
  bool ranks_were_auto = false;
  Dataset dataset;
  Split split;
  FeaturePlan features;
  LossKind loss_kind = LossKind::mse;
  Loss loss;
  std::vector<Layer> layers;
  int64_t train_samples = 0;

  int ranks() const { return static_cast<int>(*recipe.parallel.ranks); }
  int64_t steps_per_epoch() const { return (train_samples + recipe.train.batch - 1) / recipe.train.batch; }
  int64_t total_steps() const {
    return recipe.train.steps ? *recipe.train.steps : *recipe.train.epochs * steps_per_epoch();
  }
  at::ScalarType dtype() const { return recipe.train.precision == "float64" ? at::kDouble : at::kFloat; }
};

/// Decides what is "auto" (ranks: the usable cores, not more than the batch has samples; threads: the cores
/// that each rank gets). Throws UsageError for a mesh that isn't the number of ranks.
void decide_parallel(Recipe& recipe);

/// Opens the dataset, splits it, plans the features and chooses loss and layers. Throws Error or UsageError.
Workload prepare(const Recipe& recipe);

ReplicaOptions replica_options(const Workload& work);

/// The source of the training rows, in an order by train.seed; one reader per rank.
std::unique_ptr<BatchSource> open_training_source(const Workload& work, int readers);

/// Rows as tensors: inputs {floats, categories}, and the target as the loss wants it.
Batch make_batch(const Workload& work, const RowBuffer& rows);

/// Where step `step` (from 0) lies: the epoch, and its positions within it. The last batch of an epoch may be
/// smaller.
struct StepPlace {
  int64_t epoch = 0;
  Range positions;
};
StepPlace place_of_step(const Workload& work, int64_t step);

}  // namespace troika

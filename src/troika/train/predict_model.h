// A run's model as predict uses it: built from the run directory, bound to the columns of another dataset.
// Threading: belongs to one thread.
#pragma once

#include <memory>

#include "troika/parallel/model.h"
#include "troika/train/encoder.h"
#include "troika/train/recipe.h"

namespace troika {

struct PredictModel {
  Recipe recipe;
  FeaturePlan plan;
  Path weights;  // the checkpoint
  std::unique_ptr<Model> model;

  int64_t chunk = 1;  // samples that are computed at once, within a fixed memory

  /// Of the samples in `rows`, each `span` rows of it.
  Tensors inputs(const Dataset& dataset, const RowBuffer& rows, int64_t span) const;

  /// Numbers in standardised units, or the classes' probabilities; float64 [samples, width].
  at::Tensor predict(const Tensors& inputs) const;
};

/// Reads recipe, features and the best checkpoint (else the last one). Throws Error if something is missing
/// or damaged, UsageError if `dataset` doesn't fit.
PredictModel open_run(const Path& run_dir, const Dataset& dataset);

}  // namespace troika

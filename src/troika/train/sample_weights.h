// How much each sample counts in the loss: a column of the dataset, times a factor of its class. Metrics know
// no weights. No torch. Threading: values and pure functions; thread-safe as such.
#pragma once

#include <string>
#include <vector>

#include "troika/train/encoder.h"

namespace troika {

struct SampleWeights {
  std::string column;  // "": 1 each
  Storage storage = Storage::floats;
  int index = 0;
  std::vector<double> of_class;  // empty: 1 each
  bool any() const { return !column.empty() || !of_class.empty(); }
};

/// The rows that say what samples are: their own, or with windows the first one to predict.
RowSet answer_rows(const RowSet& samples, const WindowOptions& windows);

/// Reads the recipe's data.weight and train.class_weights. "balanced" gives a class n / (classes * its
/// samples), over the `train` samples and the classes that these have; the others count 1. One pass over the
/// training targets, and one over the weights. Throws UsageError for a column that isn't a number or a target
/// that isn't a class; Error naming the row for a weight of a sample of `train`, `validation` or `test` that
/// is null, negative or not finite, and Error if all training samples weigh 0.
SampleWeights plan_weights(const Dataset& dataset, const Recipe& recipe, const FeaturePlan& plan,
                           const Split& split);

/// Weights [samples]; with windows a sample's weight stands in the first row to predict.
void encode_weights(const SampleWeights& weights, const FeaturePlan& plan, const Dataset& dataset,
                    const RowBuffer& rows, double* out);

}  // namespace troika

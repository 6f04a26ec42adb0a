// mlp: embedded categories beside the floats, `layers` hidden layers of Linear + ReLU (+ dropout), a linear
// head.
#pragma once

#include "troika/train/models/registry.h"

namespace troika {

std::vector<Layer> make_mlp(const ModelRecipe& recipe, const ModelShape& shape);

/// Numbers per value of a category: half as many as it has values, at most 50.
int64_t embedding_width(int64_t values);

}  // namespace troika

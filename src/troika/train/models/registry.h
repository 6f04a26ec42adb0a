// The built-in models: one file per model, one line each in registry.cc.
// Threading: pure functions; the layers are values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/parallel/layer.h"
#include "troika/train/recipe.h"

namespace troika {

/// What a model is built for. Its inputs are {float [n, floats], int64 [n, category_values.size()]}, with a
/// window {float [n, window, floats], int64 [n, window, category_values.size()]}; its output is one float
/// tensor [n, outputs], of a model of text [n, window, outputs].
struct ModelShape {
  int64_t floats = 0;
  std::vector<int64_t> category_values;  // how many values each category input may take
  int64_t outputs = 1;
  int64_t window = 0;  // rows of a sample; 0: a sample is one row
};

/// Throws UsageError for a type that isn't there.
std::vector<Layer> make_model(const ModelRecipe& recipe, const ModelShape& shape);

}  // namespace troika

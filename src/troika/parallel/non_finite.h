// Where the first number that isn't finite comes from, looked for after a loss is NaN or infinite.
// Threading: pure, but for what the layers' forward does.
#pragma once

#include <cstdint>
#include <string>

#include "troika/parallel/replica.h"

namespace troika {

/// Small enough to be sent to the other ranks, which have the same layers and parameters.
struct NonFinite {
  enum class Where : int64_t { input, parameter, output, target, loss } where = Where::loss;
  int64_t index = 0;  // of the input, the parameter or the layer
};

/// Runs forward again, layer by layer.
NonFinite find_non_finite(const Model& model, const Batch& batch);

/// "the output of layer \"fc2\"".
std::string describe(const NonFinite& found, const Model& model);

/// The first parameter in model order with a number that isn't finite, or "".
std::string first_non_finite_parameter(const std::vector<NamedTensor>& parameters);

}  // namespace troika

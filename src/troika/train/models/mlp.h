// mlp: embedded categories beside the floats, `layers` hidden layers "hidden1", ... of Linear + ReLU (+
// dropout), a linear "head". A window's rows are laid one after the other.
#pragma once

#include "troika/train/models/embed.h"
#include "troika/train/models/registry.h"

namespace troika {

std::vector<Layer> make_mlp(const ModelRecipe& recipe, const ModelShape& shape);

}  // namespace troika

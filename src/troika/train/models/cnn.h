// cnn: convolutions along the window. "conv1", "conv2", ..., each a "conv" of kernel 3 that keeps the length
// (without a bias, which the norm would take away), a BatchNorm1d "norm", ReLU and dropout; the mean over the
// rows; a linear "head". BatchNorm: Ioffe and Szegedy, 2015, arxiv.org/abs/1502.03167.
#pragma once

#include "troika/train/models/registry.h"

namespace troika {

std::vector<Layer> make_cnn(const ModelRecipe& recipe, const ModelShape& shape);

}  // namespace troika

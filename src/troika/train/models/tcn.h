// tcn: a temporal convolutional network for windows (Bai, Kolter and Koltun, 2018, arxiv.org/abs/1803.01271;
// without its weight normalisation). "block1", "block2", ... of two causal convolutions "conv1" and "conv2"
// of kernel 3 and dilation 1, 2, 4, ..., each with ReLU and dropout, beside a residual, which is a
// convolution "downsample" of kernel 1 where the widths differ; a linear "head" that reads the last row. n
// layers see 1 + 4 * (2^n - 1) rows.
#pragma once

#include "troika/train/models/registry.h"

namespace troika {

std::vector<Layer> make_tcn(const ModelRecipe& recipe, const ModelShape& shape);

}  // namespace troika

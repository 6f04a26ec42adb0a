// Model "gpt": a decoder of bytes that predicts the next one at every place: layers "embed" (a row per byte
// value), "position" (a row per place), "block1", "block2", ... (encoder_layer.h, each place asks itself and
// those before it), "norm" and "head", whose weight is that of "embed". Source: Radford et al., 2019,
// "Language Models are Unsupervised Multitask Learners". Threading: pure function; the layers are values.
#pragma once

#include "troika/train/models/registry.h"

namespace troika {

/// From {float [n, window, 0], int64 [n, window, 1]}, a byte's value + 1, to logits [n, window, outputs].
std::vector<Layer> make_gpt(const ModelRecipe& recipe, const ModelShape& shape);

}  // namespace troika

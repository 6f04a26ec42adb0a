// Whether a layer draws from torch's default generator, which all thread ranks have in common: then results
// would depend on the number of ranks. Threading: forward_watched runs one rank at a time, tensor peers as
// one, so that a draw is put down to the right layer; it is collective over the model's tensor axis.
#pragma once

#include "troika/parallel/model.h"

namespace troika {

/// Model::forward; throws UsageError naming the first layer whose forward moved the default generator.
Tensors forward_watched(const Model& model, const Tensors& inputs, int ranks);

}  // namespace troika

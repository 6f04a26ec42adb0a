// What the engine and the references of verify have in common: the cut of a step into pieces.
// Pure functions.
#pragma once

#include "troika/train/verify.h"

namespace troika {

/// The batches of one rank in a step, one per micro-batch, in order; some may have no sample.
std::vector<Batch> pieces_of_rank(const VerifyWork& work, int64_t step, int rank, at::ScalarType dtype);

/// Without their names; not copied.
std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named);

}  // namespace troika

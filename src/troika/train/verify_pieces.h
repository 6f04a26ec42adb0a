// What the engine and the references of verify have in common: the cut of a step into pieces, and the flat
// layout. Pure functions.
#pragma once

#include "troika/train/verify.h"

namespace troika {

/// The batches of one rank in a step, one per micro-batch, in order; some may have no sample.
std::vector<Batch> pieces_of_rank(const VerifyWork& work, int64_t step, int rank, at::ScalarType dtype);

/// Without their names; not copied.
std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named);

/// Copies of a flat buffer's parts, shaped like `parameters`, which are views of a buffer with the same
/// layout.
std::vector<at::Tensor> unflatten(const at::Tensor& flat, const std::vector<NamedTensor>& parameters);

}  // namespace troika

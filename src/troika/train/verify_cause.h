// Which mistake makes this difference? Every known mistake of data-parallel training is a wrong weight on
// some piece's contribution; the pieces' own gradients are recomputed by the plain code, so each mistake
// predicts a tensor that the engine's can be compared with. Pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace troika {

/// One value (a parameter's gradient, or the loss) of each piece, as the sum over its samples. Index:
/// [rank][piece].
struct PieceValues {
  std::vector<std::vector<at::Tensor>> sums;
  std::vector<std::vector<double>> weights;
};

/// sum_not_mean, unweighted_ragged, missing_contribution, double_contribution, micro_batch_scale or unknown.
/// `tolerance` is relative to the largest entry.
std::string cause_from_pieces(const at::Tensor& got, const PieceValues& pieces, double tolerance);

}  // namespace troika

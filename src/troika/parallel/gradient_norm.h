// The norm of the mean gradient over all parameters, and what clipping by it leaves. Squares are added in
// float64 over fixed blocks of each parameter, the blocks in order, then the parameters in order: the result
// has the same bits however the blocks are dealt to ranks. Threading: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "troika/parallel/flat_layout.h"

namespace troika {

struct GradientNorm {
  double norm = 0;
  int64_t first_bad = -1;  // the first parameter whose gradient is not finite: then there is no norm
};

/// How many blocks the parameters have together.
int64_t count_norm_blocks(const FlatLayout& layout);

/// Fills in the sums of squares of the blocks whose first element lies in `slice`, on the intra-op threads of
/// this rank. `gradients` as update_slice takes them, `weight` that of the global batch; a parameter without
/// gradient counts nothing.
void add_norm_blocks(const FlatLayout& layout, bool is_double, double weight,
                     std::span<const void* const> gradients, Range slice, std::span<double> sums);

/// The sum of squares of each parameter, its blocks added in order.
std::vector<double> squares_of_parameters(const FlatLayout& layout, std::span<const double> sums);

/// The norm over parameters in model order. Where stages have different parameters, `squares` has those of
/// all.
GradientNorm norm_of(std::span<const double> squares);

/// What the mean gradient is multiplied by so that its norm is at most `clip_norm`, as torch's
/// clip_grad_norm_ has it: min(1, clip_norm / (norm + 1e-6)). (arxiv.org/abs/1211.5063)
double clip_scale(double norm, double clip_norm);

}  // namespace troika

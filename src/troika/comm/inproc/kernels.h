// The arithmetic of collectives: sums over the ranks' buffers, element by element, in rank order. Pure
// functions of their arguments; thread-safe. Every instruction set gives the same bits: nothing is
// reassociated or fused.
#pragma once

#include <cstdint>
#include <span>

#include "troika/comm/communicator.h"

namespace troika::inproc {

enum class Instructions { baseline, avx2, avx512 };

/// The widest that this processor has.
Instructions best_instructions();

/// results[k][i] = sources[0][i] + sources[1][i] + ... for i < count and every k. bfloat16 is added in
/// float32 and rounded once; int64 wraps. A result may be one of the sources.
void sum(ElementType type, std::span<const void* const> sources, std::span<void* const> results,
         int64_t count, Instructions instructions = best_instructions());

/// results[k][i] = sum of weights[r] * sources[r][i] / sum of weights, over the r whose weight isn't 0, in
/// float64 and rounded once. One such r: a copy. None: 0. Floating point types only.
void weighted_mean(ElementType type, std::span<const void* const> sources, std::span<const double> weights,
                   std::span<void* const> results, int64_t count,
                   Instructions instructions = best_instructions());

}  // namespace troika::inproc

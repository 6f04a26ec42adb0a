// How a range of samples is dealt out, decided once (semantics.md): micro-batches first, then data ranks;
// the first (size mod parts) parts get one more. Pure, so every rank computes the same answer by itself.
#pragma once

#include <algorithm>
#include <cstdint>

namespace troika {

/// Half-open [begin, end); may be empty.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Part `index` of `parts` equal parts of `whole`, in order.
inline Range share(Range whole, int64_t parts, int64_t index) {
  const int64_t each = whole.size() / parts;
  const int64_t longer = whole.size() % parts;
  const int64_t begin = whole.begin + index * each + std::min(index, longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

/// The piece (micro-batch, rank) of a global batch. Samples are dealt out in units of `unit` consecutive ones
/// that stay together (a BatchNorm group); the last unit may be smaller.
inline Range piece_of(Range whole, int64_t micro_batches, int64_t micro_batch, int64_t ranks, int64_t rank,
                      int64_t unit = 1) {
  const Range units{0, (whole.size() + unit - 1) / unit};
  const Range part = share(share(units, micro_batches, micro_batch), ranks, rank);
  return {std::min(whole.begin + part.begin * unit, whole.end),
          std::min(whole.begin + part.end * unit, whole.end)};
}

}  // namespace troika

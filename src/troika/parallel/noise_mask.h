// Masks of keyed noise: whether an element is dropped is a pure function of (key, place of its sample in the
// global batch, its index in the sample's own tensor), so it doesn't depend on ranks, micro-batches or
// threads (semantics.md, "Dropout and other noise"). Pure functions; thread-safe.
#pragma once

#include <cstdint>

namespace troika {

/// A tensor as [outer, samples, inner] in row-major order. The sample's own tensor is [outer, inner]. What
/// all samples have in common (dropped weights) is {outer 1, samples 1, inner numel} and `shared`.
struct NoiseLayout {
  int64_t outer = 1;
  int64_t samples = 1;
  int64_t inner = 1;
  bool shared = false;
  /// Of a tensor that is a slice (noise_slice.h): `chunk` elements of the sample's own tensor follow each
  /// other in the whole one, from `begin`, then every `stride`. 0: it is whole.
  int64_t chunk = 0, stride = 0, begin = 0;

  /// The place in the whole of element `e` of the sample's own tensor, and how many from there on follow each
  /// other.
  int64_t place(int64_t e) const { return chunk == 0 ? e : e / chunk * stride + begin + e % chunk; }
  int64_t follow(int64_t e) const { return chunk == 0 ? INT64_MAX : chunk - e % chunk; }
};

/// Each element becomes 0 with probability p (in steps of 2^-32), else `keep`. Element e of sample s is
/// decided by number e % 4 of philox(key, s, e / 4); what is shared by s = 2^64 - 1. T: float, double, or
/// uint16_t for the bits of a 16-bit floating-point type. `mask` has room for outer * samples * inner.
template <typename T>
void draw_mask(uint64_t key, int64_t first_sample, const NoiseLayout& layout, double p, T keep, T* mask);

}  // namespace troika

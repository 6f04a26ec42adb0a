// FlatLayout: where each trainable parameter lies in a flat buffer. Weights, gradients and optimizer state of
// a stage have the same layout, so that a range of elements means the same in each of them. Threading: a
// value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/base/split.h"

namespace troika {

struct FlatLayout {
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    int64_t offset = 0;  // in elements; a multiple of `line`
    int64_t size = 0;
    bool operator==(const Entry&) const = default;
  };

  std::vector<Entry> entries;
  int64_t total = 0;  // in elements, padding included; a multiple of `line`
  int64_t line = 1;   // elements in 64 bytes

  /// Elements of parameter `index` with the padding behind it.
  Range padded(size_t index) const;

  bool operator==(const FlatLayout&) const = default;
};

/// Puts parameters one after the other, each starting on 64 bytes. Offsets and sizes of `entries` are filled
/// in.
FlatLayout make_flat_layout(std::vector<FlatLayout::Entry> entries, int64_t element_bytes);

/// The elements that `rank` of `ranks` updates: cut on 64 bytes, so that no vector of a fused pass spans two
/// slices.
Range slice_of_rank(const FlatLayout& layout, int ranks, int rank);

}  // namespace troika

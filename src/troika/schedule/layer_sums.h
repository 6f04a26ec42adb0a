// What consecutive layers cost together. Pure; thread-safe.
#pragma once

#include <vector>

#include "troika/schedule/partition.h"

namespace troika {

/// Added from the last layer to the first: never by differences of prefix sums, in which a small layer behind
/// a huge one would be lost.
struct LayerSums {
  double work = 0, bytes = 0, held_bytes = 0;
  void add(const LayerCost& layer) {
    work += layer.work;
    bytes += layer.bytes;
    held_bytes += layer.held_bytes;
  }
};

inline LayerSums sums_of(const std::vector<LayerCost>& layers, size_t begin, size_t end) {
  LayerSums sums;
  for (size_t layer = end; layer-- > begin;) sums.add(layers[layer]);
  return sums;
}

}  // namespace troika

// Cut: how one tensor is shared out over the ranks of the tensor axis, and the two ways between a whole
// tensor and its slices. Threading: values and pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "troika/base/split.h"

namespace troika {

/// Along `dim` a tensor is `blocks.size()` blocks one after the other (the gates of an LSTM; query, key and
/// value), and block b is `units` units of blocks[b] elements each. Rank r has share r of the units of every
/// block. Uneven shares are fine.
struct Cut {
  int64_t dim = 0;
  int64_t units = 0;
  std::vector<int64_t> blocks = {1};

  bool operator==(const Cut&) const = default;
  int64_t whole_size() const;
  /// Elements along `dim` that `rank` has.
  int64_t size_of(int ranks, int rank) const;
};

/// A tensor of a model by its full name, and how it is cut.
struct CutTensor {
  std::string name;
  Cut cut;
};

/// Of a model, by name; what isn't there is whole.
using Cuts = std::unordered_map<std::string, Cut>;

/// The slice of a whole tensor that `rank` has: a copy, contiguous.
at::Tensor slice_of(const at::Tensor& whole, const Cut& cut, int ranks, int rank);

/// The whole tensor from all slices, in rank order.
at::Tensor whole_of(std::span<const at::Tensor> slices, const Cut& cut);

/// The sizes of the whole tensor that a slice belongs to.
std::vector<int64_t> whole_sizes(const at::Tensor& slice, const Cut& cut);

}  // namespace troika

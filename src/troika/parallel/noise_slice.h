// NoiseSlice: where a tensor that noise is drawn for is a slice of a whole one that the ranks of the tensor
// axis share, so that each element is dropped as it would be in the whole (semantics.md, "Dropout and other
// noise"). Threading: thread-local; a scope holds on the thread that made it, and nests.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>

#include "troika/base/split.h"
#include "troika/parallel/noise_mask.h"

namespace troika {

class NoiseSliceScope {
 public:
  /// What is drawn meanwhile has elements `slice` of `whole` along `dim`, counted from the last one (-1).
  NoiseSliceScope(int dim, Range slice, int64_t whole);
  NoiseSliceScope(const NoiseSliceScope&) = delete;
  NoiseSliceScope& operator=(const NoiseSliceScope&) = delete;
  ~NoiseSliceScope();

  struct Slice {
    int dim = -1;
    Range elements;
    int64_t whole = 0;
  };

 private:
  std::optional<Slice> before_;
};

/// Completes the layout of a tensor of these sizes whose samples are in `sample_dim`. Throws UsageError for
/// noise that all samples share, of which a slice can't be told from the whole.
NoiseLayout within_slice(NoiseLayout layout, c10::IntArrayRef sizes, size_t sample_dim);

}  // namespace troika

#include "troika/parallel/noise_slice.h"

#include "troika/base/error.h"

namespace troika {
namespace {

thread_local std::optional<NoiseSliceScope::Slice> slice_now;

}  // namespace

NoiseSliceScope::NoiseSliceScope(int dim, Range slice, int64_t whole) : before_(slice_now) {
  slice_now = Slice{dim, slice, whole};
}

NoiseSliceScope::~NoiseSliceScope() { slice_now = before_; }

NoiseLayout within_slice(NoiseLayout layout, c10::IntArrayRef sizes, size_t sample_dim) {
  if (!slice_now) return layout;
  const auto dim = static_cast<size_t>(static_cast<int>(sizes.size()) + slice_now->dim);
  if (layout.shared || dim == sample_dim) {
    fail_usage("noise that is the same for all samples can't be drawn for slices: leave this layer whole");
  }
  TROIKA_ASSERT(sizes[dim] == slice_now->elements.size(), fmt::format("{} in a slice", sizes[dim]));
  int64_t behind = 1;  // elements of one sample behind one of the slice
  for (size_t i = dim + 1; i < sizes.size(); ++i) {
    if (i != sample_dim) behind *= sizes[i];
  }
  layout.chunk = behind * slice_now->elements.size();
  layout.stride = behind * slice_now->whole;
  layout.begin = behind * slice_now->elements.begin;
  return layout;
}

}  // namespace troika

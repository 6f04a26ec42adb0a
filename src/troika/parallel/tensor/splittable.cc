#include "troika/parallel/tensor/splittable.h"

#include <ATen/ops/dropout.h>
#include <fmt/format.h>

#include "troika/parallel/noise_slice.h"

namespace troika {

std::string Splittable::why_whole(int ranks) const {
  return fmt::format("too small, or made in a way that can't be split over {} ranks", ranks);
}

std::vector<CutTensor> with_prefix(const std::string& prefix, std::vector<CutTensor> cuts) {
  for (CutTensor& cut : cuts) cut.name = prefix + "." + cut.name;
  return cuts;
}

at::Tensor dropout_of(const at::Tensor& x, double p, bool training, const Spread& spread,
                      const TensorAxis* axis) {
  if (!(p > 0)) return x;
  std::optional<NoiseSliceScope> slice;
  if (axis != nullptr && !spread.is_whole())
    slice.emplace(*spread.dim, axis->my_share(spread.size), spread.size);
  return at::dropout(x, p, training);
}

}  // namespace troika

#include "troika/parallel/tensor/splittable.h"

#include <ATen/ops/dropout.h>
#include <fmt/format.h>

#include "troika/parallel/noise_slice.h"

namespace troika {

std::string Splittable::why_whole(int ranks) const { return why_no_way(ranks); }

std::vector<CutTensor> with_prefix(const std::string& prefix, std::vector<CutTensor> cuts) {
  for (CutTensor& cut : cuts) cut.name = prefix + "." + cut.name;
  return cuts;
}

void add_part(SplitWay& all, const std::string& name, const SplitWay& part) {
  for (CutTensor& cut : with_prefix(name, part.cuts)) all.cuts.push_back(std::move(cut));
  all.payload += part.payload;
}

std::vector<SplitWay> only_whole(std::vector<SplitWay> ways) {
  std::erase_if(ways, [](const SplitWay& way) { return !way.in.is_whole() || !way.out.is_whole(); });
  return ways;
}

std::string why_no_way(int ranks) {
  return fmt::format("too small, or made in a way that can't be split over {} ranks", ranks);
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

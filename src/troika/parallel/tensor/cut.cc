#include "troika/parallel/tensor/cut.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <numeric>

#include "troika/base/error.h"

namespace troika {
namespace {

int64_t per_unit(const Cut& cut) { return std::accumulate(cut.blocks.begin(), cut.blocks.end(), int64_t{0}); }

}  // namespace

int64_t Cut::whole_size() const { return units * per_unit(*this); }

int64_t Cut::size_of(int ranks, int rank) const {
  return share({0, units}, ranks, rank).size() * per_unit(*this);
}

at::Tensor slice_of(const at::Tensor& whole, const Cut& cut, int ranks, int rank) {
  TROIKA_ASSERT(
      whole.size(cut.dim) == cut.whole_size(),
      fmt::format("{} along dimension {}, the cut is of {}", whole.size(cut.dim), cut.dim, cut.whole_size()));
  const at::NoGradGuard no_grad;
  const Range units = share({0, cut.units}, ranks, rank);
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : cut.blocks) {
    parts.push_back(whole.detach().narrow(cut.dim, begin + units.begin * size, units.size() * size));
    begin += cut.units * size;
  }
  return at::cat(parts, cut.dim).contiguous();
}

at::Tensor whole_of(std::span<const at::Tensor> slices, const Cut& cut) {
  const at::NoGradGuard no_grad;
  const auto ranks = static_cast<int>(slices.size());
  std::vector<at::Tensor> parts;
  int64_t before = 0;  // of a unit's elements, those of earlier blocks
  for (const int64_t size : cut.blocks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t units = share({0, cut.units}, ranks, rank).size();
      parts.push_back(
          slices[static_cast<size_t>(rank)].detach().narrow(cut.dim, before * units, size * units));
    }
    before += size;
  }
  return at::cat(parts, cut.dim);
}

std::vector<int64_t> whole_sizes(const at::Tensor& slice, const Cut& cut) {
  std::vector<int64_t> sizes = slice.sizes().vec();
  sizes[static_cast<size_t>(cut.dim)] = cut.whole_size();
  return sizes;
}

}  // namespace troika

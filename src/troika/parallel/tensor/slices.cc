#include "troika/parallel/tensor/slices.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace troika {
namespace {

/// Every rank's slice, in rank order. Between the ranks each has the size of the longest.
std::vector<at::Tensor> all_slices(const at::Tensor& mine, const Cut& cut, TensorAxis& axis) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> sizes = mine.sizes().vec();
  const auto dim = static_cast<size_t>(cut.dim);
  sizes[dim] = cut.size_of(axis.size(), 0);
  at::Tensor part = at::zeros(sizes, mine.options().requires_grad(false));
  if (mine.numel() > 0) part.narrow(cut.dim, 0, mine.size(cut.dim)).copy_(mine.detach());
  const at::Tensor all = axis.gather_equal(part);
  std::vector<at::Tensor> slices;
  for (int rank = 0; rank < axis.size(); ++rank) {
    slices.push_back(all.select(0, rank).narrow(cut.dim, 0, cut.size_of(axis.size(), rank)));
  }
  return slices;
}

const Cut* find(const Cuts& cuts, const std::string& name) {
  const auto at = cuts.find(name);
  return at == cuts.end() ? nullptr : &at->second;
}

/// The cut of "weights.<parameter>" and its like; null for what isn't a slice.
const Cut* cut_of_part(const Cuts& cuts, const std::string& part) {
  const size_t dot = part.find('.');
  if (dot == std::string::npos || part.substr(0, dot) == "optimizer_steps") return nullptr;
  return find(cuts, part.substr(dot + 1));
}

template <typename CutOf>
std::vector<NamedTensor> joined(const CutOf& cut_of, TensorAxis& axis, std::vector<NamedTensor> tensors,
                                bool keep) {
  for (NamedTensor& named : tensors) {
    const Cut* cut = cut_of(named.name);
    if (cut == nullptr) continue;
    at::Tensor whole = whole_of(all_slices(named.tensor, *cut, axis), *cut);
    if (keep) named.tensor = std::move(whole);
  }
  return tensors;
}

}  // namespace

std::vector<NamedTensor> in_whole(const Cuts& cuts, TensorAxis& axis, std::vector<NamedTensor> tensors,
                                  bool keep) {
  return joined([&](const std::string& name) { return find(cuts, name); }, axis, std::move(tensors), keep);
}

void add_squares_of_slices(const Cuts& cuts, TensorAxis& axis, const std::vector<NamedTensor>& parameters,
                           std::span<double> squares) {
  std::vector<double> of_slices(squares.begin(), squares.end());
  axis.communicator().all_reduce_sum(
      {of_slices.data(), static_cast<int64_t>(of_slices.size()), ElementType::float64});
  for (size_t i = 0; i < squares.size(); ++i) {
    if (cuts.contains(parameters[i].name)) squares[i] = of_slices[i];
  }
}

std::vector<NamedTensor> state_in_whole(const Cuts& cuts, TensorAxis& axis, std::vector<NamedTensor> parts,
                                        bool keep) {
  return joined([&](const std::string& name) { return cut_of_part(cuts, name); }, axis, std::move(parts),
                keep);
}

std::vector<NamedTensor> sizes_in_whole(const Cuts& cuts, std::vector<NamedTensor> parts) {
  for (NamedTensor& part : parts) {
    const Cut* cut = cut_of_part(cuts, part.name);
    if (cut == nullptr) continue;
    const std::vector<int64_t> sizes = whole_sizes(part.tensor, *cut);
    part.tensor = at::empty({1}, part.tensor.options().requires_grad(false)).expand(sizes);
  }
  return parts;
}

std::vector<NamedTensor> state_in_slices(const Cuts& cuts, const TensorAxis& axis,
                                         std::vector<NamedTensor> parts) {
  for (NamedTensor& part : parts) {
    const Cut* cut = cut_of_part(cuts, part.name);
    if (cut != nullptr) part.tensor = slice_of(part.tensor, *cut, axis.size(), axis.rank());
  }
  return parts;
}

}  // namespace troika

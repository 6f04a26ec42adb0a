#include "troika/parallel/tensor/tensor_axis.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <vector>

#include "troika/base/error.h"

namespace troika {
namespace {

ElementType element_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ElementType::float32;
    case at::kDouble:
      return ElementType::float64;
    case at::kBFloat16:
      return ElementType::bfloat16;
    default:
      fail_usage("tensors of type {} can't be split over ranks: use float32, float64 or bfloat16",
                 c10::toString(tensor.scalar_type()));
  }
}

Elements elements_of(const at::Tensor& tensor) {
  TROIKA_ASSERT(tensor.is_contiguous(), "what ranks share must be contiguous");
  return {tensor.numel() == 0 ? nullptr : tensor.data_ptr(), tensor.numel(), element_type(tensor)};
}

}  // namespace

void TensorAxis::sum(const at::Tensor& partial) {
  const Elements elements = elements_of(partial);
  payload_bytes_ += elements.bytes();
  communicator_.all_reduce_sum(elements);
}

void TensorAxis::start_sum(const at::Tensor& partial) {
  const Elements elements = elements_of(partial);
  payload_bytes_ += elements.bytes();
  under_way_.emplace_back(communicator_.start_all_reduce_sum(elements), partial);
}

void TensorAxis::finish_sum() {
  TROIKA_ASSERT(!under_way_.empty(), "no sum is under way");
  communicator_.wait(*under_way_.front().first);
  under_way_.erase(under_way_.begin());
}

// The communicator's shares are of equal size here: of the longest slice, padded.
at::Tensor TensorAxis::gather(const at::Tensor& slice, int64_t dim, int64_t whole) {
  const at::NoGradGuard no_grad;
  const int64_t longest = share_of(whole, 0).size();
  std::vector<int64_t> sizes = slice.sizes().vec();
  const auto d = static_cast<size_t>(dim < 0 ? dim + slice.dim() : dim);
  TROIKA_ASSERT(sizes[d] == my_share(whole).size(), fmt::format("a slice of {} in {}", sizes[d], whole));
  at::Tensor part = slice.detach().contiguous();
  if (sizes[d] != longest) {
    sizes[d] = longest;
    at::Tensor padded = at::zeros(sizes, slice.options().requires_grad(false));
    padded.narrow(dim, 0, slice.size(dim)).copy_(part);
    part = padded;
  }
  const at::Tensor all = gather_equal(part);
  if (d == 0 && whole % size() == 0) return all.flatten(0, 1);
  std::vector<at::Tensor> slices;
  for (int rank = 0; rank < size(); ++rank) {
    slices.push_back(all.select(0, rank).narrow(dim, 0, share_of(whole, rank).size()));
  }
  return at::cat(slices, dim);
}

at::Tensor TensorAxis::sum_scatter(const at::Tensor& partial, int64_t dim) {
  const at::NoGradGuard no_grad;
  const int64_t whole = partial.size(dim);
  const int64_t longest = share_of(whole, 0).size();
  std::vector<int64_t> sizes = partial.sizes().vec();
  const auto d = static_cast<size_t>(dim < 0 ? dim + partial.dim() : dim);
  sizes[d] = longest;
  at::Tensor all;
  if (d == 0 && whole % size() == 0) {
    all = partial.detach().contiguous();
  } else {
    sizes.insert(sizes.begin(), size());
    all = at::zeros(sizes, partial.options().requires_grad(false));
    sizes.erase(sizes.begin());
    for (int rank = 0; rank < size(); ++rank) {
      const Range theirs = share_of(whole, rank);
      all.select(0, rank)
          .narrow(dim, 0, theirs.size())
          .copy_(partial.detach().narrow(dim, theirs.begin, theirs.size()));
    }
  }
  const at::Tensor part = at::empty(sizes, partial.options().requires_grad(false));
  const Elements elements = elements_of(all);
  payload_bytes_ += elements.bytes();
  communicator_.reduce_scatter_sum(elements, elements_of(part));
  return part.narrow(dim, 0, my_share(whole).size()).contiguous();
}

at::Tensor TensorAxis::slice(const at::Tensor& whole, int64_t dim) const {
  const Range mine = my_share(whole.size(dim));
  return whole.narrow(dim, mine.begin, mine.size());
}

at::Tensor TensorAxis::gather_equal(const at::Tensor& part) {
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes.insert(sizes.begin(), size());
  at::Tensor all = at::empty(sizes, part.options().requires_grad(false));
  const Elements mine = elements_of(part);
  payload_bytes_ += mine.bytes();
  communicator_.all_gather(mine, elements_of(all));
  return all;
}

}  // namespace troika

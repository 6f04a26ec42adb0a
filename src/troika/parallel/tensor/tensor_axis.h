// TensorAxis: the ranks that have slices of the same layers and work on the same samples, as one of them sees
// them, and what they do with tensors together. Sums are taken in rank order, so every rank gets the same
// bits.
//
// Threading: belongs to its rank's thread; every call that moves data is collective over the axis.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "troika/base/split.h"
#include "troika/comm/communicator.h"

namespace troika {

class TensorAxis {
 public:
  explicit TensorAxis(Communicator& communicator) : communicator_(communicator) {}

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  Range share_of(int64_t count, int rank) const { return share({0, count}, size(), rank); }
  Range my_share(int64_t count) const { return share_of(count, rank()); }

  /// Adds the ranks' tensors, in place; contiguous, float32, float64 or bfloat16.
  void sum(const at::Tensor& partial);
  /// The same, while this rank computes on; the tensor is not touched until finish().
  void start_sum(const at::Tensor& partial);
  /// Waits for the oldest sum that was started and isn't finished.
  void finish_sum();

  /// All ranks' slices along `dim`, put together; rank r's is share r of `whole` elements.
  at::Tensor gather(const at::Tensor& slice, int64_t dim, int64_t whole);
  /// The sum of the ranks' tensors, of which this rank gets its share along `dim`.
  at::Tensor sum_scatter(const at::Tensor& partial, int64_t dim);
  /// This rank's share along `dim`, a view; moves nothing.
  at::Tensor slice(const at::Tensor& whole, int64_t dim) const;

  /// The ranks' tensors of one size, one after the other: [ranks, sizes...].
  at::Tensor gather_equal(const at::Tensor& part);

  /// What this rank has handed to the communicator so far (docs/algorithms.md has the formula).
  int64_t payload_bytes() const { return payload_bytes_; }

  Communicator& communicator() { return communicator_; }

 private:
  Communicator& communicator_;
  std::vector<std::pair<std::unique_ptr<Request>, at::Tensor>> under_way_;
  int64_t payload_bytes_ = 0;
};

}  // namespace troika

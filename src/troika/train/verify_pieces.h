// What the engines and the references of verify have in common: the cut of a step into pieces, and what the
// lanes of a run put together. Threading: pure, unless said otherwise.
#pragma once

#include <map>
#include <mutex>

#include "troika/train/verify.h"

namespace troika {

/// The batches of one rank in a step, one per micro-batch, in order; some may have no sample.
std::vector<Batch> pieces_of_rank(const VerifyWork& work, int64_t step, int rank, at::ScalarType dtype);
/// The same of all data ranks.
std::vector<std::vector<Batch>> pieces_of_ranks(const VerifyWork& work, int64_t step, at::ScalarType dtype);

/// Rank 0 may compare while the others wait for its next step, so this is longer than in training.
constexpr double kVerifyDeadlineSeconds = 600;

/// Without their names; not copied.
std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named);

/// Copies, without their names.
std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& named);

/// Where a rank's tensors are in a record: data ranks, and the tensor ranks of each. What tensor ranks have
/// slices of is recorded whole, of all of them; what each has by itself may differ, if something is wrong.
size_t recorded_rank(const Mesh& mesh, int rank);
/// The tensors under the names of a list.
std::vector<NamedTensor> as_named(const std::vector<NamedTensor>& names,
                                  const std::vector<at::Tensor>& tensors);

/// Tensors by recorded rank and name, put together from the lanes, which have different ones. Thread-safe.
class FromLanes {
 public:
  explicit FromLanes(size_t ranks) : ranks_(ranks) {}

  void put(size_t rank, const std::vector<NamedTensor>& named, const std::vector<at::Tensor>& values) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < named.size(); ++i) ranks_[rank][named[i].name] = values[i];
  }

  std::vector<at::Tensor> of_rank(size_t rank, const std::vector<NamedTensor>& order) const {
    std::vector<at::Tensor> out;
    for (const NamedTensor& named : order) out.push_back(ranks_[rank].at(named.name));
    return out;
  }

  std::vector<std::vector<at::Tensor>> all(const std::vector<NamedTensor>& order) const {
    std::vector<std::vector<at::Tensor>> out;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) out.push_back(of_rank(rank, order));
    return out;
  }

 private:
  std::mutex mutex_;
  std::vector<std::map<std::string, at::Tensor>> ranks_;
};

}  // namespace troika

#include <ATen/Parallel.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "troika/base/error.h"
#include "troika/comm/rank_group.h"
#include "troika/train/verify.h"
#include "troika/train/verify_delayed.h"
#include "troika/train/verify_pieces.h"

namespace troika {
namespace {

// Rank 0 compares while the others wait for its next step, so this is longer than in training.
constexpr double kDeadlineSeconds = 600;

std::vector<at::Tensor> copies(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& named : tensors) out.push_back(named.tensor.detach().clone());
  return out;
}

}  // namespace

std::vector<Batch> pieces_of_rank(const VerifyWork& work, int64_t step, int rank, at::ScalarType dtype) {
  std::vector<Batch> pieces;
  const Range whole{0, work.batch_size(step)};
  const int64_t unit = std::max<int64_t>(work.options.batch_norm_group, 1);
  for (int j = 0; j < work.micro_batches; ++j) {
    const Range samples = piece_of(whole, work.micro_batches, j, work.ranks, rank, unit);
    pieces.push_back(work.batch(step, samples, dtype));
    pieces.back().first_sample = samples.begin;
  }
  return pieces;
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& n : named) out.push_back(n.tensor);
  return out;
}

namespace {

/// Tensors by data rank and name, put together from the lanes, which have different ones. Thread-safe.
class FromLanes {
 public:
  explicit FromLanes(size_t data_ranks) : ranks_(data_ranks) {}

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

}  // namespace

void run_engine(const VerifyWork& work, at::ScalarType dtype,
                const std::function<void(const StepRecord&)>& on_step) {
  if (work.options.pipeline && work.options.pipeline->window) return run_window_engine(work, dtype, on_step);
  ReplicaOptions options = work.options;
  options.dtype = dtype;
  if (options.mesh.data == 0) options.mesh.data = work.ranks;
  const auto ranks = static_cast<size_t>(options.mesh.data);
  const Model whole(work.layers, options.seed, dtype);  // for the order of its tensors
  FromLanes weights_before(ranks), weights_after(ranks), buffers_before(ranks), buffers(ranks),
      gradients(ranks);
  GroupOptions group;
  group.deadline_seconds = kDeadlineSeconds;
  run_thread_ranks(options.mesh.ranks(), group, [&](Communicator& communicator) {
    at::set_num_threads(work.threads_per_rank);
    const int data_rank = options.mesh.coordinate(communicator.rank()).data;
    const auto rank = static_cast<size_t>(data_rank);
    Replica replica(communicator, work.layers, options);
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    for (int64_t step = 0; step < work.steps; ++step) {
      weights_before.put(rank, replica.parameters(), copies(replica.parameters()));
      buffers_before.put(rank, replica.others(), copies(replica.others()));
      if (work.learning_rate) replica.set_learning_rate(work.learning_rate(step));
      communicator.barrier();  // no update before every rank has copied
      const StepResult result = replica.step(pieces_of_rank(work, step, data_rank, dtype), work.loss, probe);
      weights_after.put(rank, replica.parameters(), copies(replica.parameters()));
      buffers.put(rank, replica.others(), copies(replica.others()));
      gradients.put(rank, replica.parameters(), mean);
      communicator.barrier();  // every rank's part of the record is there
      if (communicator.rank() == 0) {
        on_step({step + 1, result.loss, result.grad_norm, weights_before.all(whole.parameters()),
                 weights_after.all(whole.parameters()), buffers_before.all(whole.others()),
                 buffers.all(whole.others()), gradients.of_rank(0, whole.parameters())});
      }
      communicator.barrier();  // nobody writes into the record while rank 0 reads it
    }
  });
}

}  // namespace troika

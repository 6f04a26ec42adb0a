#include <ATen/Parallel.h>

#include <algorithm>

#include "troika/base/error.h"
#include "troika/comm/rank_group.h"
#include "troika/train/verify.h"
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

std::vector<at::Tensor> unflatten(const at::Tensor& flat, const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& named : parameters) {
    const at::Tensor& p = named.tensor;
    // The parameters are views of one buffer in the same layout, the first at its start.
    const auto bytes =
        static_cast<const char*>(p.data_ptr()) - static_cast<const char*>(parameters[0].tensor.data_ptr());
    const int64_t offset = bytes / static_cast<int64_t>(p.element_size());
    TROIKA_ASSERT(offset >= 0 && offset + p.numel() <= flat.numel(), named.name);
    out.push_back(flat.narrow(0, offset, p.numel()).view(p.sizes()).clone());
  }
  return out;
}

void run_engine(const VerifyWork& work, at::ScalarType dtype,
                const std::function<void(const StepRecord&)>& on_step) {
  StepRecord record;
  const auto ranks = static_cast<size_t>(work.ranks);
  record.weights_before.resize(ranks);
  record.weights_after.resize(ranks);
  record.buffers_before.resize(ranks);
  record.buffers.resize(ranks);
  GroupOptions group;
  group.deadline_seconds = kDeadlineSeconds;
  run_thread_ranks(work.ranks, group, [&](Communicator& communicator) {
    at::set_num_threads(work.threads_per_rank);
    const auto rank = static_cast<size_t>(communicator.rank());
    ReplicaOptions options = work.options;
    options.dtype = dtype;
    Replica replica(communicator, work.layers, options);
    at::Tensor gradients;
    StepProbe probe;
    probe.mean_gradients = &gradients;
    for (int64_t step = 0; step < work.steps; ++step) {
      record.weights_before[rank] = copies(replica.parameters());
      record.buffers_before[rank] = copies(replica.others());
      if (work.learning_rate) replica.set_learning_rate(work.learning_rate(step));
      communicator.barrier();  // no update before every rank has copied
      const StepResult result =
          replica.step(pieces_of_rank(work, step, communicator.rank(), dtype), work.loss, probe);
      record.weights_after[rank] = copies(replica.parameters());
      record.buffers[rank] = copies(replica.others());
      communicator.barrier();  // every rank's part of the record is there
      if (rank == 0) {
        record.step = step + 1;
        record.loss = result.loss;
        record.grad_norm = result.grad_norm;
        record.gradients = unflatten(gradients, replica.parameters());
        on_step(record);
      }
      communicator.barrier();  // nobody writes into the record while rank 0 reads it
    }
  });
}

}  // namespace troika

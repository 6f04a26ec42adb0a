#include <ATen/Parallel.h>

#include <algorithm>

#include "troika/base/error.h"
#include "troika/comm/rank_group.h"
#include "troika/train/verify.h"
#include "troika/train/verify_delayed.h"
#include "troika/train/verify_pieces.h"

namespace troika {

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

std::vector<std::vector<Batch>> pieces_of_ranks(const VerifyWork& work, int64_t step, at::ScalarType dtype) {
  std::vector<std::vector<Batch>> pieces;
  for (int rank = 0; rank < work.ranks; ++rank) pieces.push_back(pieces_of_rank(work, step, rank, dtype));
  return pieces;
}

std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& named : tensors) out.push_back(named.tensor.detach().clone());
  return out;
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& n : named) out.push_back(n.tensor);
  return out;
}

size_t recorded_rank(const Mesh& mesh, int rank) {
  const Coordinate at = mesh.coordinate(rank);
  return static_cast<size_t>(at.data * mesh.tensor + at.tensor);
}

std::vector<NamedTensor> as_named(const std::vector<NamedTensor>& names,
                                  const std::vector<at::Tensor>& tensors) {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < names.size(); ++i) out.push_back({names[i].name, tensors[i]});
  return out;
}

void run_engine(const VerifyWork& work, at::ScalarType dtype,
                const std::function<void(const StepRecord&)>& on_step) {
  if (work.options.pipeline && work.options.pipeline->window) return run_window_engine(work, dtype, on_step);
  ReplicaOptions options = work.options;
  options.dtype = dtype;
  if (options.mesh.data == 0) options.mesh.data = work.ranks;
  const auto ranks = static_cast<size_t>(options.mesh.data * options.mesh.tensor);
  const Model whole(work.layers, options.seed, dtype);  // for the order of its tensors
  FromLanes weights_before(ranks), weights_after(ranks), buffers_before(ranks), buffers(ranks),
      gradients(ranks);
  GroupOptions group;
  group.deadline_seconds = kVerifyDeadlineSeconds;
  run_thread_ranks(options.mesh.ranks(), group, [&](Communicator& communicator) {
    at::set_num_threads(work.threads_per_rank);
    const int data_rank = options.mesh.coordinate(communicator.rank()).data;
    const size_t rank = recorded_rank(options.mesh, communicator.rank());
    Replica replica(communicator, work.layers, options);
    std::vector<at::Tensor> mean;
    StepProbe probe;
    probe.mean_gradients = &mean;
    for (int64_t step = 0; step < work.steps; ++step) {
      weights_before.put(rank, replica.parameters(), copies_of(replica.in_whole(replica.parameters())));
      buffers_before.put(rank, replica.others(), copies_of(replica.in_whole(replica.others())));
      if (work.learning_rate) replica.set_learning_rate(work.learning_rate(step));
      communicator.barrier();  // no update before every rank has copied
      const StepResult result = replica.step(pieces_of_rank(work, step, data_rank, dtype), work.loss, probe);
      weights_after.put(rank, replica.parameters(), copies_of(replica.in_whole(replica.parameters())));
      buffers.put(rank, replica.others(), copies_of(replica.in_whole(replica.others())));
      gradients.put(rank, replica.parameters(),
                    tensors_of(replica.in_whole(as_named(replica.parameters(), mean))));
      communicator.barrier();  // every rank's part of the record is there
      if (communicator.rank() == 0) {
        std::vector<std::vector<at::Tensor>> of_tensor_ranks;
        for (int t = 0; t < options.mesh.tensor; ++t)
          of_tensor_ranks.push_back(gradients.of_rank(static_cast<size_t>(t), whole.parameters()));
        on_step({step + 1, result.loss, result.grad_norm, weights_before.all(whole.parameters()),
                 weights_after.all(whole.parameters()), buffers_before.all(whole.others()),
                 buffers.all(whole.others()), of_tensor_ranks[0], of_tensor_ranks});
      }
      communicator.barrier();  // nobody writes into the record while rank 0 reads it
    }
  });
}

}  // namespace troika

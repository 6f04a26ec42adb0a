#include "troika/train/verify_slices.h"

#include <ATen/Parallel.h>

#include "troika/comm/rank_group.h"
#include "troika/parallel/delayed_reference.h"
#include "troika/parallel/named_gather.h"
#include "troika/parallel/recompute.h"
#include "troika/parallel/tensor/slices.h"
#include "troika/train/verify_comparison.h"
#include "troika/train/verify_delayed.h"
#include "troika/train/verify_pieces.h"

namespace troika {
namespace {

/// One tensor rank's part of the reference, of either kind.
class Part {
 public:
  Part(const VerifyWork& work, const TensorPlan& plan, Communicator& communicator)
      : work_(work), axis_(communicator) {
    const ModelSlices slices{&axis_, &plan, 0};
    if (work.options.pipeline && work.options.pipeline->window) {
      delayed_ = std::make_unique<DelayedReference>(work.layers, work.options.pipeline->starts, work.options,
                                                    work.ranks, lag_of_work(work), slices);
    } else {
      plain_ = std::make_unique<MicroBatchedReference>(work.layers, work.options, work.ranks, slices);
    }
  }

  /// Whole, on every rank.
  ExpectedStep step(const StepRecord& record) {
    MicroBatchedReference& reference = plain_ ? *plain_ : delayed_->newest();
    if (plain_) {
      reference.set_weights(mine(reference, reference.parameters(), record.weights_before[0]));
      reference.set_others(mine(reference, reference.others(), record.buffers_before[0]));
    }
    if (work_.learning_rate) reference.set_learning_rate(work_.learning_rate(record.step - 1));
    const auto pieces = pieces_of_ranks(work_, record.step - 1, work_.options.dtype);
    std::vector<at::Tensor> gradients;
    const NoRecompute keeping_everything;
    const StepResult result = plain_ ? plain_->step(pieces, work_.loss, &gradients)
                                     : delayed_->step(record.step - 1, pieces, work_.loss, &gradients);
    return {result.loss, result.grad_norm, whole(as_named(reference.parameters(), gradients)),
            whole(reference.parameters()), whole(reference.others())};
  }

 private:
  const Cuts& cuts() const { return (plain_ ? *plain_ : delayed_->newest()).cuts(); }

  std::vector<at::Tensor> whole(const std::vector<NamedTensor>& tensors) {
    return copies_of(in_whole(cuts(), axis_, tensors, true));
  }

  std::vector<at::Tensor> mine(const MicroBatchedReference& reference, const std::vector<NamedTensor>& names,
                               const std::vector<at::Tensor>& whole) const {
    std::vector<at::Tensor> out;
    for (size_t i = 0; i < names.size(); ++i) {
      const auto cut = reference.cuts().find(names[i].name);
      out.push_back(cut == reference.cuts().end()
                        ? whole[i]
                        : slice_of(whole[i], cut->second, axis_.size(), axis_.rank()));
    }
    return out;
  }

  const VerifyWork& work_;
  TensorAxis axis_;
  std::unique_ptr<MicroBatchedReference> plain_;
  std::unique_ptr<DelayedReference> delayed_;
};

}  // namespace

TensorPlan tensor_plan_of(const VerifyWork& work) {
  const ReplicaOptions& options = work.options;
  return options.tensor_plan ? *options.tensor_plan : plan_tensor(work.layers, options.mesh.tensor);
}

std::optional<Difference> compare_with_slices(const VerifyWork& work, const Engine& engine) {
  std::vector<StepRecord> records;
  engine(work, work.options.dtype, [&](const StepRecord& record) { records.push_back(record); });
  const int ranks = work.options.mesh.tensor;
  const TensorPlan plan = tensor_plan_of(work);
  const Model whole(work.layers, work.options.seed, work.options.dtype);  // for its names
  const std::vector<std::string> names = names_of(whole.parameters()), buffers = names_of(whole.others());
  VerifyResult differences;  // its maxima are not those of the plain comparison
  Comparison comparison(differences, 0, names, buffers);
  GroupOptions group;
  group.deadline_seconds = kVerifyDeadlineSeconds;
  run_thread_ranks(ranks, group, [&](Communicator& communicator) {
    at::set_num_threads(work.threads_per_rank);
    Part part(work, plan, communicator);
    for (const StepRecord& record : records) {
      const ExpectedStep expected = part.step(record);
      if (communicator.rank() == 0) comparison.step(record, expected);
    }
  });
  return comparison.first();
}

}  // namespace troika

// MicroBatchedReference: what a data-parallel run must equal bit for bit. One thread does the pieces of all
// ranks, rank by rank, adds their gradients in rank order and applies the engine's own update (semantics.md,
// "Pieces and order"). Slow and short on purpose. Threading: belongs to one thread, whose intra-op threads
// should be those of a rank.
#pragma once

#include "troika/parallel/batch_norm.h"
#include "troika/parallel/flat_tensors.h"
#include "troika/parallel/replica.h"

namespace troika {

class MicroBatchedReference {
 public:
  /// With `slices` it is one rank's part of a tensor axis: then construction and step() are collective.
  MicroBatchedReference(const std::vector<Layer>& layers, const ReplicaOptions& options, int ranks,
                        ModelSlices slices = {});

  /// pieces[r] are the pieces of rank r, in order. `mean_gradients` as in StepProbe, or null. The gradients
  /// are those at `at_weights`, in the order of parameters(), or null: at the weights that are updated.
  StepResult step(const std::vector<std::vector<Batch>>& pieces, const Loss& loss,
                  std::vector<at::Tensor>* mean_gradients = nullptr,
                  const std::vector<at::Tensor>* at_weights = nullptr);

  /// Ranges of parameters() that are clipped by their own norm each; StepResult has the first one's.
  void clip_apart(std::vector<Range> parameters) { clipped_together_ = std::move(parameters); }

  void set_learning_rate(double learning_rate) { options_.optimizer.learning_rate = learning_rate; }

  /// As Replica::parameters().
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  /// Copies; in the order of parameters().
  void set_weights(const std::vector<at::Tensor>& weights);

  /// Of parameters and others that are slices.
  const Cuts& cuts() const { return model_.cuts(); }

  /// As Replica::others().
  const std::vector<NamedTensor>& others() const { return model_.others(); }
  /// Copies; in the order of others().
  void set_others(const std::vector<at::Tensor>& others);

  /// As many as a resumed run has done.
  void set_steps_done(int64_t steps) { steps_ = steps; }

 private:
  Tensors forward(const Batch& batch);
  double scale_of(Range parameters, std::span<const double> squares, StepResult& result) const;

  size_t ranks_;
  ReplicaOptions options_;
  TensorAxis* axis_;
  Model model_;
  BatchNormLog statistics_;  // of the step under way
  FlatBuffers buffers_;
  std::vector<NamedTensor> parameters_;
  std::vector<int64_t> optimizer_steps_;
  std::vector<Range> clipped_together_;
  int64_t steps_ = 0;
};

}  // namespace troika

// GradientSync: turns the ranks' gradients into the mean and the mean into new weights; one file per
// technique. Of a step it sees: begin_step, the gradients as they get ready, exchange (all of this rank's
// backward passes are done), then update and finish_update, or discard. Threading: one object per rank; from
// exchange on all calls are collective.
#pragma once

#include <memory>
#include <span>

#include "troika/comm/communicator.h"
#include "troika/parallel/flat_tensors.h"
#include "troika/parallel/fused_update.h"
#include "troika/parallel/model.h"
#include "troika/parallel/replica.h"

namespace troika {

/// What the ranks tell each other of a step before any weight is written. Doubles only: it travels as such.
struct StepNumbers {
  double loss_sum = 0;
  double weight = 0;
  double touched_all = 0;  // 1: this rank has a gradient for every parameter
  double wants_mean = 0;   // 1: this rank wants to see the mean gradient
};

struct Update {
  std::span<const UpdateRun> runs;
  double weight = 0;  // of the global batch
  bool anyone_wants_mean = false;
  at::Tensor* mean = nullptr;  // gets this rank's copy of the mean gradient, or null
};

class GradientSync {
 public:
  virtual ~GradientSync() = default;

  const FlatBuffers& buffers() const { return buffers_; }

  /// Grows with every write of the weights; asserts that no write is under way.
  virtual int64_t weight_version() const = 0;

  virtual void begin_step();
  /// The next backward is the last of this rank in this step.
  virtual void begin_last_backward() {}
  /// The gradient of a parameter has been accumulated by the present backward. Called from a hook: must not
  /// block.
  virtual void ready(size_t parameter) { buffers_.touched[parameter] = 1; }

  /// The numbers of all ranks, in rank order, valid until the next step. When it returns no rank reads the
  /// weights.
  virtual std::span<const StepNumbers> exchange(const StepNumbers& mine) = 0;
  /// By parameter: whether any rank has a gradient for it.
  virtual std::span<const uint8_t> touched_by_any() = 0;
  /// Writes this rank's part of the weights and zeroes the gradients there.
  virtual void update(const Update& update) = 0;
  /// Waits until all weights are written and all gradients are zero. False if the mean gradient was not
  /// finite, on every rank alike.
  virtual bool finish_update(const Update& update) = 0;
  /// Instead of update(): zeroes this rank's gradient.
  virtual void discard();

  /// Before and after somebody writes weights and moments from outside a step. True on the rank that writes
  /// them.
  virtual bool begin_load() = 0;
  virtual void end_load() = 0;

 protected:
  FlatBuffers buffers_;
};

/// A rank's model and its technique: they are made together, because the technique owns the weights' memory.
/// The parameters' .grad are views of sync->buffers().gradient.
struct PlacedModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<GradientSync> sync;
};

PlacedModel place_shared_weights(Communicator& communicator, const std::vector<Layer>& layers,
                                 const ReplicaOptions& options);
PlacedModel place_replicated_weights(Communicator& communicator, const std::vector<Layer>& layers,
                                     const ReplicaOptions& options);

/// Moves the parameters of a model built here into flat buffers of its own; the gradient starts at zero and
/// is bound to the parameters.
FlatBuffers own_flat_buffers(const Model& model, at::ScalarType dtype);

/// fused_update over the part of `runs` that lies in `slice`, on the intra-op threads of this rank. False if
/// a mean gradient is not finite.
bool update_slice(const UpdateBuffers& buffers, const Optimizer& optimizer, double weight,
                  std::span<const UpdateRun> runs, Range slice);

/// Zeroes what update_slice leaves out of the mean: elements that no run covers.
void zero_outside_runs(const at::Tensor& mean, std::span<const UpdateRun> runs, Range slice);

UpdateBuffers update_buffers(const FlatBuffers& buffers, std::span<void* const> gradients,
                             const at::Tensor& mean);

}  // namespace troika

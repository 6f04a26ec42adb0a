// GradientSync: turns the ranks' gradients into the mean and the mean into new weights; one file per
// technique. Of a step it sees: begin_step, begin_last_backward, exchange (all of this rank's backward passes
// are done), squares if gradients are clipped, then update and finish_update, or discard. Gradients are the
// .grad of the parameters, undefined at the step's start: backward then leaves its own tensor there, which
// saves zeroing a buffer and adding to it. Or they are handed over, where several versions of the weights are
// in use and the next step's backwards may come before this step's update (asynchronous schedules).
// Threading: one object per rank; from exchange on all calls are collective.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "troika/base/clock.h"
#include "troika/comm/communicator.h"
#include "troika/parallel/flat_tensors.h"
#include "troika/parallel/fused_update.h"
#include "troika/parallel/gradient_norm.h"
#include "troika/parallel/model.h"
#include "troika/parallel/replica.h"

namespace troika {

/// What the ranks tell each other of a step before any weight is written. Doubles only: it travels as such.
struct StepNumbers {
  double loss_sum = 0;
  double weight = 0;
  double wants_mean = 0;   // 1: this rank wants to see the mean gradient
  double touched_all = 0;  // 1: this rank has a gradient for every parameter; filled in by the technique
};

struct Update {
  const Optimizer& optimizer;
  std::span<const int64_t> optimizer_steps;  // by parameter, this step included
  double weight = 0;                         // of the global batch
  bool anyone_wants_mean = false;
  at::Tensor* mean = nullptr;  // gets this rank's copy of the mean gradient before clipping, or null
  double scale = 1;            // what clipping leaves of the mean gradient
};

class GradientSync {
 public:
  virtual ~GradientSync() = default;

  const FlatBuffers& buffers() const { return buffers_; }

  /// How often all of the weights have been written; asserts that no write is under way.
  virtual int64_t weight_version() const = 0;

  /// From now on gradients are handed over, and not those of the model's parameters.
  void expect_gradients_apart();
  /// After begin_step, before exchange: a gradient for each parameter, or undefined.
  void hand_over(std::vector<at::Tensor> gradients);
  /// After exchange: the update begins with the weights as they are, and writes `weights`, of the same
  /// layout, which nobody reads.
  void write_next_to(const at::Tensor& weights);

  virtual void begin_step() = 0;
  /// The next backward is the last of this rank in this step.
  virtual void begin_last_backward() {}

  /// The numbers of all ranks, in rank order, valid until the next step. When it returns no rank reads the
  /// weights.
  virtual std::span<const StepNumbers> exchange(const StepNumbers& mine) = 0;
  /// After exchange, by parameter: whether any rank has a gradient for it. The others are left out of the
  /// update.
  std::span<const uint8_t> touched() const { return touched_; }

  /// After exchange, before update: of each parameter the sum of the squares of its mean gradient, the same
  /// on every rank. Waits for all.
  virtual std::vector<double> squares(double weight) = 0;

  /// Writes this rank's part of the weights.
  virtual void update(const Update& update) = 0;
  /// Waits until all weights are written. False if the mean gradient was not finite, on every rank alike.
  virtual bool finish_update(const Update& update) = 0;
  /// Instead of update and finish_update: forgets the gradients.
  virtual void discard() = 0;

  /// Before and after somebody writes weights and moments from outside a step. True on the rank that writes
  /// them.
  virtual bool begin_load() = 0;
  virtual void end_load() = 0;

  /// Seconds that this rank has waited for the others since it was last asked.
  double take_waited() { return std::exchange(waited_, 0.0); }

 protected:
  explicit GradientSync(std::vector<NamedTensor> parameters) : parameters_(std::move(parameters)) {}

  template <typename Wait>
  void waiting(const Wait& wait) {
    const auto from = Clock::now();
    wait();
    waited_ += seconds_since(from);
  }

  FlatBuffers buffers_;
  Range written_;                        // of the flat buffers: what this rank updates
  std::vector<NamedTensor> parameters_;  // whose .grad are the gradients
  double waited_ = 0;
  std::vector<uint8_t> touched_;
};

/// A rank's model and its technique: they are made together, because the technique owns the weights' memory.
/// A version of the weights is a model of its own, so that autograd keeps what it has saved of each; their
/// buffers (running statistics) are the first one's. The first has the weights that training starts from.
struct PlacedModel {
  std::vector<std::unique_ptr<Model>> models;  // by version
  std::vector<at::Tensor> weights;             // flat
  std::unique_ptr<GradientSync> sync;
};

/// `layers` are those of one stage, `border` its model's.
struct StageModel {
  const std::vector<Layer>& layers;
  const ReplicaOptions& options;
  Border border = {};
  int versions = 1;
  ModelSlices slices = {};
};
PlacedModel place_shared_weights(Communicator& communicator, const StageModel& stage);
PlacedModel place_replicated_weights(Communicator& communicator, const StageModel& stage);

/// Moves the parameters of a model into flat buffers of its own, without moments.
FlatBuffers own_flat_buffers(const Model& model, at::ScalarType dtype);

/// fused_update of the parameters, or parts of them, that lie in `slice`, on the intra-op threads of this
/// rank. gradients[i * ranks + r] is rank r's gradient of parameter i, or null; a parameter with none is left
/// out. Only parameters of two dimensions and more decay. `mean` may be undefined. False if a mean gradient
/// is not finite.
bool update_slice(const FlatBuffers& buffers, const Update& update, std::span<const void* const> gradients,
                  const at::Tensor& mean, Range slice);

}  // namespace troika

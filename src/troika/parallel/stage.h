// Stage: one contiguous piece of the model, and what it keeps of each micro-batch between its passes. It does
// what it is told, in any order that makes sense: it knows no lane, no schedule and no other rank. What
// crosses its borders comes and goes as Parcels. A micro-batch without samples has no passes to do; its
// parcels are empty.
//
// Threading: belongs to its rank's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "troika/parallel/batch_norm.h"
#include "troika/parallel/hand_over.h"
#include "troika/parallel/non_finite.h"
#include "troika/parallel/replica.h"
#include "troika/parallel/sample_dims.h"
#include "troika/parallel/split_backward.h"
#include "troika/parallel/tensor_link.h"
#include "troika/parallel/wiring.h"

namespace troika {

/// What a stage asks of whoever owns its weights.
struct StageWeights {
  std::function<int64_t()> version = [] { return int64_t{0}; };  // the newest one's number
  std::function<void()> before_last_backward = [] {};            // of a step, or its weight part
};

/// The steps that a stage goes through without a stop: one, or a window of an asynchronous schedule.
struct StageSteps {
  int64_t first = 1;              // counted from 1
  std::vector<int> of_pieces;     // piece -> step from the first one; empty: all are of the first
  std::vector<int64_t> versions;  // piece -> version of the weights; empty: the newest, at forward
};

struct StageSetting {
  ReplicaOptions options;
  int ranks = 1;            // of the whole run: with more than one, noise must be keyed
  bool recomputed = false;  // keeps its inputs only, and runs forward again before backward
  StageWeights weights = {};
};

class Stage {
 public:
  /// `models` are built from the wiring's layers with border_of(wiring): version v of the weights is that of
  /// number v modulo how many there are. All outlive the stage.
  Stage(std::vector<Model*> models, const StageWiring& wiring, StageSetting setting);
  ~Stage();

  /// `pieces` by micro-batch: the first stage reads inputs, the last one targets, all of them how many
  /// samples there are and where. The loss is the last stage's; it outlives the steps.
  void begin_steps(const StageSteps& steps, std::span<const Batch> pieces, const Loss& loss);
  /// Tensors that a piece lacked, before its forward; they are let go with its backward.
  void load(int micro_batch, const Batch& batch);
  /// Forwards without gradient in evaluation mode, until the next begin_step.
  void begin_evaluation(std::span<const Batch> pieces);

  void forward(int micro_batch);
  void recompute(int micro_batch);
  void backward(int micro_batch);
  void backward_input(int micro_batch);
  void backward_weight(int micro_batch);

  /// What goes to stage `to` once forward is done, and what comes from stage `from` before it.
  Parcel activation_for(int micro_batch, int to);
  void take_activation(int micro_batch, int from, Parcel parcel);
  /// The same backwards: once backward, or its input part, is done; before it.
  Parcel gradient_for(int micro_batch, int to);
  void take_gradient(int micro_batch, int from, Parcel parcel);

  /// The sum of the losses and their weights, once the backwards of the step are done (from the first, 0).
  double loss_sum(int step = 0) const { return sums_.at(static_cast<size_t>(step)).loss; }
  double weight(int step = 0) const { return sums_.at(static_cast<size_t>(step)).weight; }
  /// The first micro-batch whose loss isn't finite: it has no backward.
  std::optional<int> bad_micro_batch() const { return bad_micro_batch_; }
  /// Its number among those of its step.
  int number_in_step(int micro_batch) const;
  /// Where in this stage the first number that isn't finite is, running forward again.
  NonFinite find_bad_number(int micro_batch);

  /// Of an evaluation on the last stage.
  Tensors outputs(int micro_batch);
  /// Its layers alone, forward, without gradient; keeps nothing.
  Tensors evaluate(const Tensors& inputs) const;

  BatchNormLog& statistics(int step = 0) { return statistics_.at(static_cast<size_t>(step)); }
  const StageWiring& wiring() const { return wiring_; }
  bool is_first() const { return wiring_.in.empty(); }
  bool is_last() const { return wiring_.out.empty(); }

 private:
  struct Work;  // on one micro-batch
  Work& work(int micro_batch);
  size_t slot_of(int64_t version) const { return static_cast<size_t>(version) % models_.size(); }
  StepContext context_of(const Work& work, BatchNormLog* log) const;
  void begin(std::span<const Batch> pieces);
  void put_inputs_together(Work& work);
  Tensors run_layers(const Work& work, const Tensors& inputs, BatchNormLog* log);
  Tensors finished(Tensors outputs) const;
  void run_on_given(Work& work, BatchNormLog* log);
  void forward_with_gradient(Work& work, int micro_batch, BatchNormLog* log);
  void forward_to_forget(Work& work, int micro_batch, BatchNormLog* log);
  static void note_needs(Work& work);
  void note_loss(Work& work, int micro_batch, double sum, double weight);
  void check_version(const Work& work) const;
  std::vector<size_t> outputs_along(const StageEdge& edge, size_t outputs) const;
  bool has_backward(const Work& work) const;
  void collect_roots(Work& work, Tensors& roots, Tensors& gradients) const;
  static void let_go(Work& work);
  void keep_input_gradients(Work& work, const Tensors& gradients);
  void begin_weight_part(Work& work);
  void check_inputs_unwritten(const Work& work, int micro_batch) const;

  const std::vector<Model*> models_;  // by version
  const StageWiring& wiring_;
  const Border border_;
  StageSetting setting_;
  std::vector<std::vector<at::Tensor>> leaves_;  // by version: the parameters' and the tied uses'

  int64_t first_step_ = 0;
  bool training_ = true;
  const Loss* loss_ = nullptr;
  std::vector<std::unique_ptr<Work>> works_;  // by micro-batch
  int64_t backwards_left_ = 0;
  struct Sums {
    double loss = 0, weight = 0;
  };
  std::vector<Sums> sums_;                // by step
  std::vector<BatchNormLog> statistics_;  // by step
  std::optional<int> bad_micro_batch_;
  SampleDims output_dims_;  // of what goes to other stages; empty: no training step has been there yet
  int watched_ = 0;
};

}  // namespace troika

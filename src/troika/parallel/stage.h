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
#include "troika/parallel/split_backward.h"
#include "troika/parallel/tensor_link.h"
#include "troika/parallel/wiring.h"

namespace troika {

/// What a stage asks of whoever owns its weights.
struct StageWeights {
  std::function<int64_t()> version = [] { return int64_t{0}; };  // must not change from forward to backward
  std::function<void()> before_last_backward = [] {};            // of a step, or its weight part
};

struct StageSetting {
  ReplicaOptions options;
  int ranks = 1;            // of the whole run: with more than one, noise must be keyed
  bool recomputed = false;  // keeps its inputs only, and runs forward again before backward
  StageWeights weights = {};
};

class Stage {
 public:
  /// `model` is built from the wiring's layers with border_of(wiring); both outlive the stage.
  Stage(Model& model, const StageWiring& wiring, StageSetting setting);
  ~Stage();

  /// `pieces` by micro-batch: the first stage reads inputs, the last one targets, all of them how many
  /// samples there are and where. They outlive the step, which counts from 1. The loss is the last stage's.
  void begin_step(int64_t step, std::span<const Batch> pieces, const Loss& loss);
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

  /// Of the step so far: the sum of the losses and their weights, once the backwards are done.
  double loss_sum() const { return loss_sum_; }
  double weight() const { return weight_; }
  /// The first micro-batch whose loss isn't finite: it has no backward.
  std::optional<int> bad_micro_batch() const { return bad_micro_batch_; }
  /// Where in this stage the first number that isn't finite is, running forward again.
  NonFinite find_bad_number(int micro_batch);

  /// Of an evaluation on the last stage.
  Tensors outputs(int micro_batch);
  /// Its layers alone, forward, without gradient; keeps nothing.
  Tensors evaluate(const Tensors& inputs) const;

  BatchNormLog& statistics() { return statistics_; }
  const StageWiring& wiring() const { return wiring_; }
  const Model& model() const { return model_; }
  bool is_first() const { return wiring_.in.empty(); }
  bool is_last() const { return wiring_.out.empty(); }

 private:
  struct Work;  // on one micro-batch
  Work& work(int micro_batch);
  StepContext context_of(const Batch& batch, BatchNormLog* log) const;
  void begin(std::span<const Batch> pieces);
  void put_inputs_together(Work& work);
  Tensors run_layers(const Work& work, const Tensors& inputs, BatchNormLog* log);
  Tensors finished(Tensors outputs) const;
  void forward_with_gradient(Work& work, int micro_batch, BatchNormLog* log);
  void note_loss(Work& work, int micro_batch, double sum, double weight);
  std::vector<size_t> outputs_along(const StageEdge& edge, size_t outputs) const;
  bool has_backward(const Work& work) const;
  void collect_roots(Work& work, Tensors& roots, Tensors& gradients) const;
  void keep_input_gradients(Work& work, const Tensors& gradients);
  void begin_weight_part(Work& work);
  void check_inputs_unwritten(const Work& work, int micro_batch) const;

  Model& model_;
  const StageWiring& wiring_;
  const Border border_;
  StageSetting setting_;
  BatchNormLog statistics_;
  std::vector<at::Tensor> leaves_;  // the parameters' and the tied uses'

  int64_t step_ = 0;
  bool training_ = true;
  const Loss* loss_ = nullptr;
  std::vector<std::unique_ptr<Work>> works_;  // by micro-batch
  int64_t backwards_left_ = 0;
  double loss_sum_ = 0, weight_ = 0;
  std::optional<int> bad_micro_batch_;
  int watched_ = 0;
};

}  // namespace troika

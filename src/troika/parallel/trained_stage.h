// TrainedStage: a stage together with its weights, and what happens to them in a step: the gradients of the
// data ranks become their mean, the mean becomes new weights. Several make up a replica's lane.
//
// In a window of an asynchronous schedule the weights of several versions are in use, each a copy of its own
// (weight stashing: Harlap et al., 2018, arXiv:1806.03377): an update goes from the newest one to the slot of
// the oldest. The optimizer has one state, always of the newest.
//
// Threading: belongs to its rank's thread; construction, reduce, squares, update and discard are collective
// over the data ranks.
#pragma once

#include <map>

#include "troika/parallel/gradient_sync.h"
#include "troika/parallel/replica_state.h"
#include "troika/parallel/stage.h"
#include "troika/parallel/step_math.h"

namespace troika {

struct TrainedStageParts {
  const std::vector<Layer>& layers;  // of the stage
  const StageWiring& wiring;         // outlives it
  const ReplicaOptions& options;
  int ranks = 1;  // of the whole run
  bool recomputed = false;
  bool has_ties =
      false;         // a gradient is only whole when those of all uses are added: none goes on before reduce
  int versions = 0;  // of weights, of an asynchronous schedule; 0: a synchronous one
  ModelSlices slices = {};
};

class TrainedStage {
 public:
  /// Throws UsageError naming a layer that can't be trained exactly on so many ranks.
  TrainedStage(Communicator& data, const TrainedStageParts& parts);

  Stage& stage() { return stage_; }
  /// Of the newest weights.
  Model& model() { return *placed_.models[newest_]; }
  const Model& model() const { return *placed_.models[newest_]; }
  int64_t version() const { return sync().weight_version(); }

  /// Throws UsageError if layers can't take these pieces.
  void begin_steps(const StageSteps& steps, std::span<const Batch> pieces, const Loss& loss);

  /// R in a window: all backwards of this rank that belong to `step` (from its first) are done, and used
  /// version `version` of the weights.
  void take_gradients(int step, int64_t version);

  /// R of a step, O in a window: learns what the other data ranks have.
  void reduce(bool wants_mean, int step = 0);
  /// Over all data ranks, after reduce; the same in every stage.
  const Totals& totals() const { return totals_; }

  /// Of the mean gradients, by parameter; after reduce.
  std::vector<double> squares() { return sync().squares(totals_.weight); }

  /// O: false if a mean gradient was not finite; the weights are written all the same. `mean` gets a copy of
  /// the mean gradients, by parameter, or is null.
  bool update(double scale, std::vector<at::Tensor>* mean);
  /// Instead of update: forgets the gradients.
  void discard() { sync().discard(); }
  /// Last, so that a step that fails leaves the running statistics as they were.
  void apply_statistics() { stage_.statistics(reduced_step_).apply(); }

  void set_learning_rate(double rate) { options_.optimizer.learning_rate = rate; }
  double take_waited() { return sync().take_waited(); }

  /// Views of the flat buffer of the newest weights.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  StateParts state_parts() const;
  /// Copies what is this stage's from a state that has been checked; collective over the data ranks.
  void load(const std::vector<NamedTensor>& state);

 private:
  GradientSync& sync() const { return *placed_.sync; }
  StageSetting setting(const TrainedStageParts& parts);
  void check_norms(const StageSteps& steps, std::span<const Batch> pieces) const;

  Communicator& data_;
  ReplicaOptions options_;
  bool has_ties_, is_asynchronous_;
  PlacedModel placed_;
  size_t newest_ = 0;  // of the models
  std::vector<NamedTensor> parameters_;
  std::vector<int64_t> optimizer_steps_;          // by parameter: a step that leaves it out doesn't count
  std::string batch_norm_, instance_norm_;        // the first layer that keeps statistics of its kind
  std::map<int, std::vector<at::Tensor>> taken_;  // gradients of a window's steps, until they are reduced
  int reduced_step_ = 0;
  Totals totals_;
  Stage stage_;
};

}  // namespace troika

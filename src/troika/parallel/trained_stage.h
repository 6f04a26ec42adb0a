// TrainedStage: a stage together with its weights, and what happens to them in a step: the gradients of the
// data ranks become their mean, the mean becomes new weights. Several make up a replica's lane. Threading:
// belongs to its rank's thread; construction, reduce, squares, update and discard are collective over the
// data ranks.
#pragma once

#include "troika/parallel/gradient_sync.h"
#include "troika/parallel/replica_state.h"
#include "troika/parallel/stage.h"
#include "troika/parallel/step_math.h"

namespace troika {

class TrainedStage {
 public:
  /// `layers` are those of the stage; `ranks` of the whole run. With ties a gradient is only whole when those
  /// of all uses have been added, so none is passed on before reduce. `wiring` outlives it. Throws UsageError
  /// naming a layer that can't be trained exactly on so many ranks.
  TrainedStage(Communicator& data, const std::vector<Layer>& layers, const StageWiring& wiring,
               const ReplicaOptions& options, int ranks, bool recomputed, bool has_ties);

  Stage& stage() { return stage_; }
  Model& model() { return *placed_.model; }
  const Model& model() const { return *placed_.model; }

  /// Throws UsageError if layers can't take these pieces.
  void begin_step(int64_t step, std::span<const Batch> pieces, const Loss& loss);

  /// R: all backwards of this rank are done. Learns what the other data ranks have.
  void reduce(bool wants_mean);
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
  void apply_statistics() { stage_.statistics().apply(); }

  void set_learning_rate(double rate) { options_.optimizer.learning_rate = rate; }
  double take_waited() { return sync().take_waited(); }

  /// Views of the flat buffer.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  StateParts state_parts() const;
  /// Copies what is this stage's from a state that has been checked; collective over the data ranks.
  void load(const std::vector<NamedTensor>& state);

 private:
  GradientSync& sync() const { return *placed_.sync; }
  StageSetting setting(int ranks, bool recomputed);

  Communicator& data_;
  ReplicaOptions options_;
  bool has_ties_;
  PlacedModel placed_;
  std::vector<NamedTensor> parameters_;
  std::vector<int64_t> optimizer_steps_;    // by parameter: a step that leaves it out doesn't count
  std::string batch_norm_, instance_norm_;  // the first layer that keeps statistics of its kind
  Totals totals_;
  Stage stage_;
};

}  // namespace troika

#include "troika/parallel/trained_stage.h"

#include <algorithm>

#include "troika/base/error.h"
#include "troika/parallel/batch_norm.h"

namespace troika {
namespace {

PlacedModel place(Communicator& data, const std::vector<Layer>& layers, const ReplicaOptions& options,
                  const Border& border) {
  const bool replicated = options.weights == WeightPlacement::replicated && data.size() > 1;
  return replicated ? place_replicated_weights(data, layers, options, border)
                    : place_shared_weights(data, layers, options, border);
}

void refuse_instance_norm(const std::string& layer, size_t pieces) {
  if (layer.empty() || pieces <= 1) return;
  fail_usage(
      "layer \"{}\" is an InstanceNorm with running statistics, which would follow each of the {} pieces "
      "of a batch by itself: make it without track_running_stats, or use one rank and one micro-batch",
      layer, pieces);
}

}  // namespace

TrainedStage::TrainedStage(Communicator& data, const std::vector<Layer>& layers, const StageWiring& wiring,
                           const ReplicaOptions& options, int ranks, bool recomputed, bool has_ties)
    : data_(data),
      options_(options),
      has_ties_(has_ties),
      placed_(place(data, layers, options, border_of(wiring))),
      parameters_(views_of(sync().buffers().weights, sync().buffers().layout)),
      optimizer_steps_(parameters_.size(), 0),
      batch_norm_(model().first_batch_norm()),
      instance_norm_(first_tracking_instance_norm(model())),
      stage_(*placed_.model, wiring, setting(ranks, recomputed)) {
  model().share_ties();  // the owners' numbers have moved
  refuse_instance_norm(instance_norm_, static_cast<size_t>(data.size()));
  if (data.size() > 1 && !batch_norm_.empty() && options.batch_norm_group == 0) {
    fail_usage(
        "layer \"{}\" is a BatchNorm over the whole batch, and its samples are on {} ranks: set "
        "batch_norm_group, the number of samples that are normalised together and stay on one rank, or use "
        "LayerNorm or GroupNorm",
        batch_norm_, data.size());
  }
}

StageSetting TrainedStage::setting(int ranks, bool recomputed) {
  StageSetting setting{options_, ranks, recomputed};
  setting.weights.version = [this] { return sync().weight_version(); };
  setting.weights.before_last_backward = [this] {
    // A tied parameter's gradient is only whole when its uses' have been added.
    if (!has_ties_) sync().begin_last_backward();
  };
  return setting;
}

void TrainedStage::begin_step(int64_t step, std::span<const Batch> pieces, const Loss& loss) {
  refuse_instance_norm(instance_norm_, pieces.size());
  if (!batch_norm_.empty()) check_batch_norm_pieces(batch_norm_, pieces, options_.batch_norm_group);
  sync().begin_step();
  for (const TiedUse& use : model().tied()) at::Tensor(use.tensor).mutable_grad().reset();
  sync().take_waited();  // what came before isn't this step's
  stage_.begin_step(step, pieces, loss);
}

void TrainedStage::reduce(bool wants_mean) {
  StepNumbers mine;
  mine.loss_sum = stage_.loss_sum();
  mine.weight = stage_.weight();
  mine.wants_mean = wants_mean ? 1 : 0;
  totals_ = total_of(sync().exchange(mine));
}

bool TrainedStage::update(double scale, std::vector<at::Tensor>* mean) {
  stage_.statistics().exchange(data_);
  for (size_t i = 0; i < optimizer_steps_.size(); ++i) optimizer_steps_[i] += sync().touched()[i];
  at::Tensor flat;
  const Update update{options_.optimizer,
                      optimizer_steps_,
                      totals_.weight,
                      totals_.anyone_wants_mean,
                      mean != nullptr ? &flat : nullptr,
                      scale};
  sync().update(update);
  const bool finite = sync().finish_update(update);
  if (mean != nullptr) {
    for (NamedTensor& gradient : views_of(flat, sync().buffers().layout)) mean->push_back(gradient.tensor);
  }
  return finite;
}

StateParts TrainedStage::state_parts() const {
  return {options_.optimizer, sync().buffers(), optimizer_steps_, model().others()};
}

void TrainedStage::load(const std::vector<NamedTensor>& state) {
  const bool writes_weights = sync().begin_load();
  read_state(state_parts(), state, writes_weights, optimizer_steps_);
  sync().end_load();
}

}  // namespace troika

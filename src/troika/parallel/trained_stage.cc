#include "troika/parallel/trained_stage.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "troika/base/error.h"
#include "troika/parallel/batch_norm.h"

namespace troika {
namespace {

PlacedModel place(Communicator& data, const TrainedStageParts& parts) {
  const StageModel stage{parts.layers, parts.options, border_of(parts.wiring), std::max(1, parts.versions),
                         parts.slices};
  const bool replicated = parts.options.weights == WeightPlacement::replicated && data.size() > 1;
  return replicated ? place_replicated_weights(data, stage) : place_shared_weights(data, stage);
}

std::vector<Model*> models_of(const PlacedModel& placed) {
  std::vector<Model*> models;
  for (const auto& model : placed.models) models.push_back(model.get());
  return models;
}

// Buffers and other tensors that aren't trained are those of the first model.
void share_others(const PlacedModel& placed) {
  const at::NoGradGuard no_grad;
  const std::vector<NamedTensor>& first = placed.models[0]->others();
  for (const auto& model : placed.models) {
    for (size_t i = 0; i < first.size(); ++i) at::Tensor(model->others()[i].tensor).set_data(first[i].tensor);
  }
}

void refuse_instance_norm(const std::string& layer, size_t pieces) {
  if (layer.empty() || pieces <= 1) return;
  fail_usage(
      "layer \"{}\" is an InstanceNorm with running statistics, which would follow each of the {} pieces "
      "of a batch by itself: make it without track_running_stats, or use one rank and one micro-batch",
      layer, pieces);
}

}  // namespace

TrainedStage::TrainedStage(Communicator& data, const TrainedStageParts& parts)
    : data_(data),
      options_(parts.options),
      has_ties_(parts.has_ties),
      is_asynchronous_(parts.versions > 0),
      placed_(place(data, parts)),
      parameters_(views_of(sync().buffers().weights, sync().buffers().layout)),
      optimizer_steps_(parameters_.size(), 0),
      batch_norm_(model().first_batch_norm()),
      instance_norm_(first_tracking_instance_norm(model())),
      stage_(models_of(placed_), parts.wiring, setting(parts)) {
  for (const auto& model : placed_.models) model->share_ties();  // the owners' numbers have moved
  share_others(placed_);
  if (is_asynchronous_) sync().expect_gradients_apart();
  refuse_instance_norm(instance_norm_, static_cast<size_t>(data.size()));
  if (data.size() > 1 && !batch_norm_.empty() && options_.batch_norm_group == 0) {
    fail_usage(
        "layer \"{}\" is a BatchNorm over the whole batch, and its samples are on {} ranks: set "
        "batch_norm_group, the number of samples that are normalised together and stay on one rank, or use "
        "LayerNorm or GroupNorm",
        batch_norm_, data.size());
  }
}

StageSetting TrainedStage::setting(const TrainedStageParts& parts) {
  StageSetting setting{options_, parts.ranks, parts.recomputed};
  setting.weights.version = [this] { return version(); };
  setting.weights.before_last_backward = [this] {
    // A tied parameter's gradient is only whole when its uses' have been added.
    if (!has_ties_ && !is_asynchronous_) sync().begin_last_backward();
  };
  return setting;
}

void TrainedStage::begin_steps(const StageSteps& steps, std::span<const Batch> pieces, const Loss& loss) {
  check_norms(steps, pieces);
  taken_.clear();
  sync().begin_step();
  for (const auto& model : placed_.models) {
    drop_gradients(model->parameters());
    for (const TiedUse& use : model->tied()) at::Tensor(use.tensor).mutable_grad().reset();
  }
  sync().take_waited();  // what came before isn't this step's
  stage_.begin_steps(steps, pieces, loss);
}

void TrainedStage::check_norms(const StageSteps& steps, std::span<const Batch> pieces) const {
  size_t begin = 0;
  while (begin < pieces.size()) {
    size_t end = begin + 1;
    while (end < pieces.size() && (steps.of_pieces.empty() || steps.of_pieces[end] == steps.of_pieces[begin]))
      ++end;
    refuse_instance_norm(instance_norm_, end - begin);
    if (!batch_norm_.empty()) {
      check_batch_norm_pieces(batch_norm_, pieces.subspan(begin, end - begin), options_.batch_norm_group);
    }
    begin = end;
  }
}

// The leaves' .grad are free for the next step's backwards, which may use the same version.
void TrainedStage::take_gradients(int step, int64_t version) {
  const Model& used = *placed_.models[static_cast<size_t>(version) % placed_.models.size()];
  used.add_tied_gradients();
  std::vector<at::Tensor>& taken = taken_[step];
  for (const NamedTensor& parameter : used.parameters()) {
    taken.push_back(std::exchange(at::Tensor(parameter.tensor).mutable_grad(), at::Tensor()));
  }
}

void TrainedStage::reduce(bool wants_mean, int step) {
  reduced_step_ = step;
  if (is_asynchronous_) {
    sync().begin_step();
    sync().hand_over(std::move(taken_.at(step)));
    taken_.erase(step);
  }
  StepNumbers mine;
  mine.loss_sum = stage_.loss_sum(step);
  mine.weight = stage_.weight(step);
  mine.wants_mean = wants_mean ? 1 : 0;
  totals_ = total_of(sync().exchange(mine));
}

bool TrainedStage::update(double scale, std::vector<at::Tensor>* mean) {
  stage_.statistics(reduced_step_).exchange(data_);
  for (size_t i = 0; i < optimizer_steps_.size(); ++i) optimizer_steps_[i] += sync().touched()[i];
  at::Tensor flat;
  const Update update{options_.optimizer,
                      optimizer_steps_,
                      totals_.weight,
                      totals_.anyone_wants_mean,
                      mean != nullptr ? &flat : nullptr,
                      scale};
  if (is_asynchronous_) {
    newest_ = (newest_ + 1) % placed_.models.size();
    sync().write_next_to(placed_.weights[newest_]);
  }
  sync().update(update);
  const bool finite = sync().finish_update(update);
  if (is_asynchronous_) parameters_ = views_of(sync().buffers().weights, sync().buffers().layout);
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

#include "troika/parallel/delayed_reference.h"

#include <algorithm>

#include "troika/base/error.h"
#include "troika/parallel/wiring.h"

namespace troika {
namespace {

std::vector<int64_t> stages_of(const std::vector<NamedTensor>& parameters, const std::vector<Layer>& layers,
                               const std::vector<int64_t>& starts) {
  const Wiring wiring = wire(layers, starts);
  std::vector<int64_t> stages;
  size_t layer = 0;
  for (const NamedTensor& parameter : parameters) {
    // Parameters are in the order of layers, each under its layer's name.
    while (layer < layers.size() && !parameter.name.starts_with(full_name(layers[layer].name, ""))) ++layer;
    TROIKA_ASSERT(layer < layers.size(), fmt::format("no layer has parameter {}", parameter.name));
    stages.push_back(stage_of_layer(wiring, static_cast<int64_t>(layer)));
  }
  return stages;
}

}  // namespace

Lag lag_of(const std::string& schedule, int64_t stages, bool vertical_sync) {
  if (schedule == "pipedream-2bw") return [](int64_t, int64_t t) { return std::min<int64_t>(t, 1); };
  TROIKA_ASSERT(schedule == "pipedream", schedule + " has no law of its own");
  return
      [=](int64_t stage, int64_t t) { return std::min(t, vertical_sync ? stages - 1 : stages - 1 - stage); };
}

DelayedReference::DelayedReference(const std::vector<Layer>& layers, const std::vector<int64_t>& starts,
                                   const ReplicaOptions& options, int ranks, Lag lag, ModelSlices slices)
    : newest_(layers, options, ranks, slices),
      stage_of_parameter_(stages_of(newest_.parameters(), layers, starts)),
      lag_(std::move(lag)) {
  std::vector<Range> stages;
  for (size_t stage = 0; stage < starts.size(); ++stage) {
    const auto [begin, end] = std::ranges::equal_range(stage_of_parameter_, static_cast<int64_t>(stage));
    stages.push_back({begin - stage_of_parameter_.begin(), end - stage_of_parameter_.begin()});
  }
  if (options.clip_norm > 0 && options.clip_by_stage) newest_.clip_apart(std::move(stages));
}

StepResult DelayedReference::step(int64_t step_of_window, const std::vector<std::vector<Batch>>& pieces,
                                  const Loss& loss, std::vector<at::Tensor>* mean_gradients) {
  if (step_of_window == 0) history_.clear();
  std::vector<at::Tensor>& now = history_.emplace_back();
  for (const NamedTensor& parameter : newest_.parameters()) now.push_back(parameter.tensor.clone());
  std::vector<at::Tensor> old;
  int64_t most = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    const int64_t lag = lag_(stage_of_parameter_[i], step_of_window);
    TROIKA_ASSERT(lag >= 0 && lag < std::ssize(history_), fmt::format("{} updates ago", lag));
    old.push_back(history_[history_.size() - 1 - static_cast<size_t>(lag)][i]);
    most = std::max(most, lag);
  }
  const StepResult result = newest_.step(pieces, loss, mean_gradients, &old);
  // A lag grows by one a step at the most.
  while (std::ssize(history_) > most + 1) history_.pop_front();
  return result;
}

}  // namespace troika

#include "troika/train/stage_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "troika/base/table.h"
#include "troika/base/text.h"
#include "troika/parallel/fused_update.h"
#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/parallel/torch_errors.h"
#include "troika/schedule/catalogue.h"
#include "troika/simulate/simulate.h"
#include "troika/train/step_pieces.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

// A longer window of an asynchronous schedule has the same pace.
constexpr int64_t kMostSimulatedSteps = 1000;

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

/// Sums over the layers of one stage; bytes of one micro-batch.
struct StageSums {
  StageCost cost;  // seconds; what passes hold, as activation_bytes and so on
  int64_t parameters = 0;
  double working_bytes = 0;  // the most that a pass takes for itself
  SplitCounts split;         // where somebody waits for the input's gradient
};

StageSums sums_of(const ModelProfile& profile, const Range& layers, int64_t micro_batches) {
  StageSums sums;
  sums.cost = {.forward_s = 0, .input_s = 0, .weight_s = 0, .backward_s = 0};
  const bool is_last = layers.end == static_cast<int64_t>(profile.layers.size());
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    const LayerProfile& layer = profile.layers[static_cast<size_t>(i)];
    sums.cost.forward_s += layer.forward_s;
    sums.cost.input_s += layer.input_s;
    sums.cost.weight_s += layer.weight_s;
    *sums.cost.backward_s += layer.backward_s;
    sums.cost.activation_bytes += static_cast<double>(layer.held_bytes);
    sums.cost.weight_pending_bytes += static_cast<double>(layer.pending_bytes);
    sums.parameters += layer.parameters;
    // From the second micro-batch on a gradient is made before it is added.
    const int64_t added = micro_batches > 1 ? layer.parameter_bytes : 0;
    sums.working_bytes =
        std::max(sums.working_bytes, static_cast<double>(std::max(layer.working_bytes, added)));
    sums.split.in_input_part += layer.split.in_input_part;
    sums.split.in_weight_part += layer.split.in_weight_part;
  }
  const LayerProfile& end = profile.layers[static_cast<size_t>(layers.end - 1)];
  if (!is_last) sums.cost.activation_bytes += static_cast<double>(end.loose_bytes);
  // Nobody asks the first stage for a gradient of its input, so all of its backward is the weights' part.
  if (layers.begin == 0) {
    sums.cost.weight_s += std::exchange(sums.cost.input_s, 0.0);
    sums.cost.weight_pending_bytes = sums.cost.activation_bytes;
    sums.split = {};
  }
  // A gradient that the stage before has yet to use is still its maker's.
  if (layers.begin > 0) {
    sums.working_bytes +=
        static_cast<double>(profile.layers[static_cast<size_t>(layers.begin - 1)].output_bytes);
  }
  sums.cost.kept_input_bytes = static_cast<double>(is_last ? 0 : end.output_bytes);
  return sums;
}

/// The most that the passes of one stage hold, from the order of its lane alone.
double most_held_bytes(const Schedule& schedule, int stage, const StageCost& cost) {
  const double kept = schedule.is_recomputed(stage) ? cost.kept_input_bytes : cost.activation_bytes;
  double now = 0, most = 0;
  for (const Action& action : schedule.lanes[static_cast<size_t>(schedule.lane_of(stage))]) {
    if (action.stage != stage) continue;
    if (action.op == Op::forward) now += kept;
    if (action.op == Op::recompute) now += cost.activation_bytes - kept;
    most = std::max(most, now);
    if (action.op == Op::backward) now -= cost.activation_bytes;
    if (action.op == Op::backward_input) now += cost.weight_pending_bytes - cost.activation_bytes;
    most = std::max(most, now);
    if (action.op == Op::backward_weight) now -= cost.weight_pending_bytes;
  }
  return most;
}

std::string layers_text(const Workload& work, const Range& layers) {
  const auto name = [&](int64_t i) { return printable(work.layers[static_cast<size_t>(i)].name, 30); };
  if (layers.size() == 1) return name(layers.begin);
  return fmt::format("{} .. {} ({} layers)", name(layers.begin), name(layers.end - 1), layers.size());
}

std::string table_of(const Workload& work, const RunPlan& plan, const std::vector<int>& versions) {
  const bool has_versions = std::ranges::any_of(versions, [](int count) { return count > 1; });
  std::vector<std::string> head = {"stage", "layers", "parameters", "ms a micro-batch", "share", "memory"};
  std::vector<bool> right = {true, false, true, true, true, true};
  if (has_versions) {
    head.push_back("versions of weights");
    right.push_back(true);
  }
  Table table(head, right);
  double all = 0;
  for (const StagePlan& stage : plan.stages) all += stage.seconds;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    std::vector<std::string> row = {std::to_string(s),
                                    layers_text(work, stage.layers),
                                    with_commas(stage.parameters),
                                    fmt::format("{:.3g}", 1e3 * stage.seconds),
                                    all > 0 ? fmt::format("{:.1f} %", 100 * stage.seconds / all) : "-",
                                    human_bytes(static_cast<double>(stage.peak_bytes))};
    if (has_versions) row.push_back(std::to_string(versions[s]));
    table.add(row);
  }
  return table.text();
}

/// Where a schedule puts off weight gradients that can't be put off.
std::string zero_bubble_text(const std::string& schedule, const SplitCounts& split) {
  const int64_t all = split.in_input_part + split.in_weight_part;
  if (2 * split.in_input_part <= all) return "";
  return fmt::format(
      "\n{} can't gain much here: {:.0f} % of the weights' gradients behind the first stage ({} of {}) are "
      "computed together with "
      "the "
      "input's, as in a fused LSTM, so there is little to fill bubbles with; 1f1b needs less memory",
      schedule, 100.0 * static_cast<double>(split.in_input_part) / static_cast<double>(all),
      split.in_input_part, all);
}

}  // namespace

bool has_parts(const Schedule& schedule) {
  return std::ranges::any_of(schedule.lanes, [](const Lane& lane) {
    return std::ranges::any_of(lane, [](const Action& a) { return a.op == Op::backward_input; });
  });
}

ModelProfile profile_model(const Workload& work, bool in_parts) {
  const internal::ThreadCount threads(*work.recipe.parallel.threads_per_rank);
  const std::unique_ptr<BatchSource> source = open_training_source(work, 1);
  const StepPlace place = place_of_step(work, 0);
  const Range piece = piece_of(place.positions, work.recipe.parallel.micro_batches, 0, work.mesh().data, 0,
                               work.piece_unit());
  RowBuffer rows;
  source->gather(0, place.epoch, piece, rows);
  const Batch batch = make_batch(work, rows);
  ModelProfile profile;
  for (const at::Tensor& input : batch.inputs) profile.input_bytes += bytes_of(input);
  profile.input_bytes += bytes_of(batch.target) + bytes_of(batch.weights);
  ReplicaOptions options = replica_options(work);
  options.pipeline.reset();
  ProfileOptions how{.in_parts = in_parts};
  with_plain_errors([&] { profile.layers = profile_layers(work.layers, options, batch, work.loss, how); });
  return profile;
}

std::vector<LayerCost> costs_of(const ModelProfile& profile, int moments) {
  std::vector<LayerCost> costs;
  for (const LayerProfile& layer : profile.layers) {
    costs.push_back({layer.name, layer.forward_s + layer.backward_s,
                     static_cast<double>(layer.parameter_bytes) * (2 + moments),
                     static_cast<double>(layer.held_bytes)});
  }
  return costs;
}

/// Of one version, of one rank: with tensor ranks its slices.
double weight_bytes(const Workload& work, Range layers) {
  double bytes = 0;
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    const auto whole = static_cast<double>(work.profile->layers[static_cast<size_t>(i)].parameter_bytes);
    double part = 1;
    if (work.tensor_plan) {
      const LayerSplit& split = work.tensor_plan->layers[static_cast<size_t>(i)];
      if (split.weights > 0)
        part = static_cast<double>(split.weights_per_rank) / static_cast<double>(split.weights);
    }
    bytes += whole * part;
  }
  return bytes;
}

RunPlan plan_stages(const Workload& work) {
  const ModelProfile& profile = *work.profile;
  const int64_t micro_batches = work.recipe.parallel.micro_batches;
  const std::vector<int64_t> starts = work.starts();
  const Schedule schedule =
      work.pipeline ? work.pipeline->options.schedule
                    : make_schedule("1f1b", {.lanes = 1, .micro_batches = static_cast<int>(micro_batches)});
  const auto moments = static_cast<double>(moment_names(optimizer_of(work.recipe.train)).size());
  const bool sums_apart = work.recipe.parallel.weights == "replicated" && work.mesh().data > 1;
  RunPlan plan;
  CostModel costs;
  SplitCounts split;
  for (size_t s = 0; s < starts.size(); ++s) {
    const Range layers = layers_of_stage(starts, s, work.layers.size());
    const auto stage = static_cast<int>(s);
    const StageSums sums = sums_of(profile, layers, micro_batches);
    costs.stages.push_back(sums.cost);
    split.in_input_part += sums.split.in_input_part;
    split.in_weight_part += sums.split.in_weight_part;
    // Versions of the weights, moments, a gradient, and the flat one that ranks add up.
    const double copies = schedule.max_versions[s] + moments + 1 + (sums_apart ? 1 : 0);
    double bytes = weight_bytes(work, layers) * copies + most_held_bytes(schedule, stage, sums.cost) +
                   sums.working_bytes;
    // A rank has the micro-batches of a whole step; they count for its first stage.
    if (first_stage_of_lane(schedule, schedule.lane_of(stage)) == stage) {
      bytes += static_cast<double>(micro_batches * profile.input_bytes);
    }
    plan.stages.push_back(
        {layers, sums.parameters, sums.cost.forward_s + *sums.cost.backward_s, std::llround(bytes)});
  }
  // What a schedule holds is seen in a short window; its time and its bubble belong to the real one.
  const int64_t window = work.is_asynchronous() ? std::min(window_steps(work, 0), kMostSimulatedSteps) : 1;
  const Schedule timed =
      work.is_asynchronous() ? work.pipeline->options.window(static_cast<int>(window)) : schedule;
  const Summary summary = summarize(timed, simulate(timed, costs));
  plan.step_s = summary.makespan_s;
  plan.bubble = summary.bubble_rate_makespan;
  if (!work.pipeline) return plan;
  plan.text = table_of(work, plan, schedule.max_versions);
  plan.text +=
      fmt::format("pipeline: {} lanes, schedule {}, {} micro-batch{}: bubble {:.1f} % of {} predicted",
                  work.mesh().pipeline, work.pipeline->schedule, micro_batches,
                  micro_batches == 1 ? "" : "es", 100 * plan.bubble, human_seconds(plan.step_s));
  if (work.is_asynchronous()) plan.text += fmt::format(", a window of {} steps", with_commas(window));
  if (has_parts(schedule)) plan.text += zero_bubble_text(work.pipeline->schedule, split);
  return plan;
}

}  // namespace troika

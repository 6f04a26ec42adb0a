#include "troika/train/pipeline_plan.h"

#include <fmt/format.h>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/parallel/fused_update.h"
#include "troika/parallel/model.h"
#include "troika/schedule/liveness.h"
#include "troika/schedule/partition.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/weight_versions.h"
#include "troika/train/schedule_choice.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

void refuse_unused(const ParallelRecipe& parallel) {
  const auto refuse = [](bool set, const char* key) {
    if (set) {
      fail_usage(
          "parallel.{} means nothing without a pipeline: set the mesh, --mesh pipeline=2, or leave it out",
          key);
    }
  };
  refuse(parallel.schedule.has_value(), "schedule");
  refuse(parallel.chunks != 0, "chunks");
  refuse(!parallel.cuts.empty() || !parallel.cut_by.empty(), "cuts");
  refuse(parallel.memory_limit_bytes != 0, "memory_limit_bytes");
  refuse(parallel.flush_every != 0, "flush_every");
  refuse(parallel.vertical_sync, "vertical_sync");
}

std::vector<int> recomputed_stages(const std::string& recompute, int stages) {
  std::vector<int> out;
  const int end = recompute == "always" ? stages : recompute == "except_last" ? stages - 1 : 0;
  for (int stage = 0; stage < end; ++stage) out.push_back(stage);
  return out;
}

int moments_of(const TrainRecipe& train) {
  return static_cast<int>(moment_names(optimizer_of(train)).size());
}

/// Parameters as work; bytes of weights, gradients and optimizer state.
std::vector<LayerCost> costs_by_parameters(const std::vector<Layer>& layers, const TrainRecipe& train) {
  const auto element = static_cast<double>(c10::elementSize(dtype_of(train)));
  std::vector<LayerCost> costs;
  for (const Layer& layer : layers) {
    // By itself: what it gets and puts doesn't matter for its parameters.
    const Model model({{layer.name, layer.make}}, train.seed, dtype_of(train));
    LayerCost cost{layer.name};
    for (const NamedTensor& parameter : model.parameters()) {
      cost.work += static_cast<double>(parameter.tensor.numel());
    }
    cost.bytes = cost.work * element * (2 + moments_of(train));
    costs.push_back(std::move(cost));
  }
  return costs;
}

void require_enough_layers(size_t layers, const PipelinePlan& plan, int lanes) {
  const int stages = plan.options.schedule.num_stages();
  if (stages > lanes && static_cast<int64_t>(layers) < stages) {
    fail_usage(
        "{} layers can't fill {} stages ({} lanes x {} of schedule {}): take fewer lanes, a schedule with "
        "one stage on each lane, or a model with more layers",
        layers, stages, lanes, stages / lanes, plan.schedule);
  }
}

std::vector<int64_t> named_cuts(const std::vector<Layer>& layers, const PipelinePlan& plan,
                                const ParallelRecipe& parallel) {
  const int lanes = parallel.mesh->pipeline, stages = plan.options.schedule.num_stages();
  std::vector<std::string> names;
  for (const Layer& layer : layers) names.push_back(layer.name);
  std::vector<int64_t> starts = cuts_by_name(names, parallel.cuts);
  if (static_cast<int>(starts.size()) != stages) {
    fail_usage(
        "parallel.cuts names {} layers, which makes {} stages; the schedule has {} ({} lanes x {}): name {}, "
        "or set parallel.cuts = \"time\"",
        parallel.cuts.size(), starts.size(), stages, lanes, stages / lanes, stages - 1);
  }
  return starts;
}

std::vector<int64_t> cut(const Recipe& recipe, const std::vector<Layer>& layers, const PipelinePlan& plan,
                         const MeasureLayers& measure) {
  const ParallelRecipe& parallel = recipe.parallel;
  const Schedule& schedule = plan.options.schedule;
  require_enough_layers(layers.size(), plan, parallel.mesh->pipeline);
  if (!parallel.cuts.empty()) return named_cuts(layers, plan, parallel);
  if (schedule.num_stages() == 1) return {0};
  PartitionRequest request{.stages = schedule.num_stages()};
  // How late a layer's gradient comes depends on its stage: two runs must not differ by a measurement.
  if (parallel.cut_by == "parameters" || (parallel.cut_by.empty() && plan.options.window))
    return partition(costs_by_parameters(layers, recipe.train), request).starts;
  if (static_cast<int64_t>(layers.size()) < schedule.num_stages()) {
    return partition(std::vector<LayerCost>(layers.size()), request).starts;  // says why not
  }
  if (parallel.memory_limit_bytes > 0) {
    const std::vector<LanePeaks> peaks = lane_peaks(schedule);
    for (int stage = 0; stage < schedule.num_stages(); ++stage) {
      // A lane's stages share what it has, and it holds so many micro-batches of each.
      const int lane = schedule.lane_of(stage);
      request.memory_limit.push_back(static_cast<double>(parallel.memory_limit_bytes) /
                                     stages_per_lane(schedule)[static_cast<size_t>(lane)]);
      request.micro_batches_held.push_back(peaks[static_cast<size_t>(lane)].held);
    }
  }
  return partition(costs_of(measure(has_parts(schedule)), moments_of(recipe.train)), request).starts;
}

}  // namespace

std::vector<std::string> first_layers(const PipelineOptions& pipeline, const std::vector<Layer>& layers) {
  std::vector<std::string> names;
  for (size_t stage = 1; stage < pipeline.starts.size(); ++stage) {
    names.push_back(layers[static_cast<size_t>(pipeline.starts[stage])].name);
  }
  return names;
}

std::optional<PipelinePlan> plan_pipeline(const Recipe& recipe, const std::vector<Layer>& layers,
                                          const MeasureLayers& measure) {
  const ParallelRecipe& parallel = recipe.parallel;
  const bool has_lanes = parallel.mesh->pipeline > 1;
  if (!has_lanes) refuse_unused(parallel);
  if (!has_lanes && parallel.recompute != "always") return std::nullopt;
  const ScheduleChoice choice = choose_schedule(parallel);
  PipelinePlan plan;
  plan.schedule = choice.name;
  plan.options.vertical_sync = parallel.vertical_sync;
  Schedule& schedule = plan.options.schedule;
  schedule = choice.schedule;
  const std::vector<int> recomputed = recomputed_stages(parallel.recompute, schedule.num_stages());
  if (!recomputed.empty()) schedule = with_recompute(schedule, recomputed);
  if (choice.window) {
    for (int stage = 0; stage < schedule.num_stages(); ++stage) {
      schedule.max_versions[static_cast<size_t>(stage)] =
          versions_to_keep(schedule, stage, versions_of_forwards(schedule, stage, parallel.vertical_sync));
    }
    plan.longest_window = choice.longest_window;
    plan.options.window = [window = choice.window, recomputed](int steps) {
      return recomputed.empty() ? window(steps) : with_recompute(window(steps), recomputed);
    };
  }
  plan.options.starts = cut(recipe, layers, plan, measure);
  return plan;
}

}  // namespace troika

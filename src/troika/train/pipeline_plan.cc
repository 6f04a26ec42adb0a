#include "troika/train/pipeline_plan.h"

#include <fmt/format.h>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/parallel/fused_update.h"
#include "troika/parallel/model.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/partition.h"
#include "troika/schedule/passes.h"
#include "troika/simulate/simulate.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

constexpr const char* kDefaultSchedule = "1f1b";

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
  refuse(!parallel.cuts.empty(), "cuts");
}

std::vector<int> recomputed_stages(const std::string& recompute, int stages) {
  std::vector<int> out;
  const int end = recompute == "always" ? stages : recompute == "except_last" ? stages - 1 : 0;
  for (int stage = 0; stage < end; ++stage) out.push_back(stage);
  return out;
}

Schedule make(const std::string& name, const ParallelRecipe& parallel) {
  if (catalogue_entry(name).asynchronous) {
    fail_usage("schedule {} updates weights within its window; asynchronous training is not in this version",
               name);
  }
  ScheduleRequest request;
  request.lanes = parallel.mesh->pipeline;
  request.micro_batches = static_cast<int>(parallel.micro_batches);
  request.chunks = static_cast<int>(parallel.chunks);
  return make_schedule(name, request);
}

/// What each layer holds: its parameters as work, and the bytes of weights, gradients and optimizer state.
std::vector<LayerCost> layer_costs(const std::vector<Layer>& layers, const TrainRecipe& train) {
  const auto element = static_cast<double>(c10::elementSize(dtype_of(train)));
  const auto copies = 2 + static_cast<double>(moment_names(optimizer_of(train)).size());  // and gradients
  std::vector<LayerCost> costs;
  for (const Layer& layer : layers) {
    // By itself: what it gets and puts doesn't matter for its parameters.
    const Model model({{layer.name, layer.make}}, train.seed, dtype_of(train));
    LayerCost cost{layer.name};
    for (const NamedTensor& parameter : model.parameters()) {
      cost.work += static_cast<double>(parameter.tensor.numel());
    }
    cost.bytes = cost.work * element * copies;
    costs.push_back(std::move(cost));
  }
  return costs;
}

std::vector<int64_t> cut(const std::vector<LayerCost>& costs, const PipelinePlan& plan,
                         const ParallelRecipe& parallel) {
  const int lanes = parallel.mesh->pipeline, stages = plan.options.schedule.num_stages();
  if (stages > lanes && static_cast<int64_t>(costs.size()) < stages) {
    fail_usage(
        "{} layers can't fill {} stages ({} lanes x {} of schedule {}): take fewer lanes, a schedule with "
        "one stage on each lane, or a model with more layers",
        costs.size(), stages, lanes, stages / lanes, plan.schedule);
  }
  if (parallel.cuts.empty()) return partition(costs, {.stages = stages}).starts;
  std::vector<std::string> names;
  for (const LayerCost& layer : costs) names.push_back(layer.name);
  std::vector<int64_t> starts = cuts_by_name(names, parallel.cuts);
  if (static_cast<int>(starts.size()) != stages) {
    fail_usage("parallel.cuts names {} layers, which makes {} stages; the schedule has {} ({} lanes x {})",
               parallel.cuts.size(), starts.size(), stages, lanes, stages / lanes);
  }
  return starts;
}

double simulated_bubble(const Schedule& schedule) {
  const CostModel costs = CostModel::uniform(schedule.num_stages(), {});
  return summarize(schedule, simulate(schedule, costs)).bubble_rate_makespan;
}

}  // namespace

std::optional<PipelinePlan> plan_pipeline(const Recipe& recipe, const std::vector<Layer>& layers) {
  const ParallelRecipe& parallel = recipe.parallel;
  const bool has_lanes = parallel.mesh->pipeline > 1;
  if (!has_lanes) refuse_unused(parallel);
  if (!has_lanes && parallel.recompute != "always") return std::nullopt;
  PipelinePlan plan;
  plan.schedule = parallel.schedule.value_or(kDefaultSchedule);
  Schedule& schedule = plan.options.schedule;
  schedule = make(plan.schedule, parallel);
  const std::vector<LayerCost> costs = layer_costs(layers, recipe.train);
  plan.options.starts = cut(costs, plan, parallel);
  const std::vector<int> recomputed = recomputed_stages(parallel.recompute, schedule.num_stages());
  if (!recomputed.empty()) schedule = with_recompute(schedule, recomputed);
  plan.bubble = simulated_bubble(schedule);
  plan.text = partition_table(costs, plan.options.starts, "parameters");
  plan.text += fmt::format(
      "pipeline: {} lanes, schedule {}, {} micro-batch{}, bubble {:.1f} % if all stages take as long",
      parallel.mesh->pipeline, plan.schedule, parallel.micro_batches, parallel.micro_batches == 1 ? "" : "es",
      100 * plan.bubble);
  return plan;
}

}  // namespace troika

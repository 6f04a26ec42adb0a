// How a run's model is cut into stages and in which order they work, decided from the recipe before anything
// is built. Threading: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troika/parallel/replica.h"
#include "troika/schedule/partition.h"
#include "troika/train/recipe.h"

namespace troika {

/// What each layer holds: its parameters as work, and the bytes of weights, gradients and optimizer state.
/// Builds one layer at a time.
std::vector<LayerCost> layer_costs(const std::vector<Layer>& layers, const Recipe& recipe);

/// Absent for a mesh of one lane that recomputes nothing. Stages are balanced by parameters unless the recipe
/// names the cuts. Throws UsageError for a schedule that doesn't take these numbers, and for keys that mean
/// nothing on this mesh.
std::optional<PipelineOptions> plan_pipeline(const Recipe& recipe, const std::vector<Layer>& layers);

/// The schedule that a pipeline of this recipe has.
std::string schedule_name(const ParallelRecipe& parallel);

/// The largest share of a lane's time that it waits, if every stage takes as long as every other and backward
/// twice as long as forward: the simulated makespan's.
double predicted_bubble(const Schedule& schedule);

/// For people, before the run: stages with their layers, parameters and bytes; schedule and bubble.
std::string pipeline_text(const Recipe& recipe, const PipelineOptions& pipeline,
                          const std::vector<Layer>& layers);

}  // namespace troika

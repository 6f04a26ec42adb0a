// How a run's model is cut into stages and in which order they work, decided from the recipe before anything
// is built. Threading: pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "troika/parallel/replica.h"
#include "troika/train/recipe.h"
#include "troika/train/stage_plan.h"

namespace troika {

struct PipelinePlan {
  std::string schedule;  // its name
  PipelineOptions options;
  int64_t longest_window = 0;  // asynchronous: steps that its schedule has; 0: any number
};

/// The first layers of stages 1, 2, ...
std::vector<std::string> first_layers(const PipelineOptions& pipeline, const std::vector<Layer>& layers);

/// Absent for a mesh of one lane that recomputes nothing. Stages are balanced by the time of their layers, as
/// `measure` finds it, or by parameters, for which layers are built one at a time, unless the recipe names
/// the cuts; results don't depend on them. Throws UsageError for a schedule that doesn't take these numbers,
/// for keys that mean nothing on this mesh, and for a memory limit that no cuts keep.
using MeasureLayers = std::function<const ModelProfile&(bool in_parts)>;
std::optional<PipelinePlan> plan_pipeline(const Recipe& recipe, const std::vector<Layer>& layers,
                                          const MeasureLayers& measure);

}  // namespace troika

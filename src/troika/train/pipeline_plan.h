// How a run's model is cut into stages and in which order they work, decided from the recipe before anything
// is built. Threading: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troika/parallel/replica.h"
#include "troika/train/recipe.h"

namespace troika {

struct PipelinePlan {
  std::string schedule;  // its name
  PipelineOptions options;
  double bubble = 0;  // of the simulated makespan, if all stages take as long and backward twice forward
  std::string text;   // for people: stages with their layers, parameters and bytes; schedule and bubble
};

/// Absent for a mesh of one lane that recomputes nothing. Stages are balanced by parameters unless the recipe
/// names the cuts; layers are built one at a time to count those. Throws UsageError for a schedule that
/// doesn't take these numbers, and for keys that mean nothing on this mesh.
std::optional<PipelinePlan> plan_pipeline(const Recipe& recipe, const std::vector<Layer>& layers);

}  // namespace troika

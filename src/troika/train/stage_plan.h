// What each stage of a run is going to take, said before it begins: seconds and bytes, from a profile of the
// model's layers on a real micro-batch. Threading: profile_model runs on the calling thread; the rest are
// values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "troika/parallel/layer_profile.h"
#include "troika/schedule/partition.h"

namespace troika {

struct Workload;

/// On one micro-batch, with a rank's threads.
struct ModelProfile {
  std::vector<LayerProfile> layers;
  int64_t input_bytes = 0;  // of a micro-batch: inputs, target and weights
};

/// Reads the run's first micro-batch. Errors of the model are those of its first step.
ModelProfile profile_model(const Workload& work, bool in_parts);

/// What cuts by time balance. Weights count with their gradients and `moments` of the optimizer.
std::vector<LayerCost> costs_of(const ModelProfile& profile, int moments);

/// Whether a schedule has backwards in two parts.
bool has_parts(const Schedule& schedule);

struct StagePlan {
  Range layers;
  int64_t parameters = 0;
  double seconds = 0;      // of one micro-batch, forward and backward
  int64_t peak_bytes = 0;  // weights, gradients, optimizer, what its passes hold, and the rank's inputs
};

struct RunPlan {
  std::vector<StagePlan> stages;
  double step_s = 0;  // of the simulated schedule: its passes alone
  double bubble = 0;  // of that time
  std::string text;   // for people, of a pipeline
};

/// `work.profile` is there.
RunPlan plan_stages(const Workload& work);

}  // namespace troika

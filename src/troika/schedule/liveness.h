// What a lane holds while it works. Depends on the order of its actions alone, not on times. Pure;
// thread-safe.
#pragma once

#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

/// Peaks of one lane in whole-lane micro-batches: an activation of one of its V stages counts 1 / V, also of
/// a recomputed stage (what that saves is a matter of bytes, which are not known here).
struct LanePeaks {
  double activations = 0;     // forward started, backward or its input part not ended
  double weight_pending = 0;  // input part ended, weight part not
  double held = 0;            // peak of the sum
  bool operator==(const LanePeaks&) const = default;
};

/// One value per lane. Of forward-only schedules: what is held is the one activation at work.
std::vector<LanePeaks> lane_peaks(const Schedule& schedule);

/// Peak `held` of the fullest lane; 0 without lanes.
double most_held(const std::vector<LanePeaks>& peaks);

/// The first step of a lane at which what it holds passes `limit` (whole-lane micro-batches), or -1.
int first_step_above(const Schedule& schedule, int lane, double limit);

/// The most distinct weight versions that each stage holds: those of forwards in flight (backward or its
/// weight part not ended), and the newest. The version of a forward is the number of optimizer steps of its
/// stage before it. Where there are optimizer steps, ActionIndex::fits (graph.h) must hold.
std::vector<int> versions_held(const Schedule& schedule);

}  // namespace troika

// What a lane holds while it works. Depends on the order of its actions alone, not on times. Pure;
// thread-safe.
#pragma once

#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

/// Peaks of one lane in whole-lane micro-batches: an activation of one of its V stages counts 1 / V.
struct LanePeaks {
  double activations = 0;     // forward started, backward or its input part not ended
  double weight_pending = 0;  // input part ended, weight part not
  double held = 0;            // peak of the sum
  bool operator==(const LanePeaks&) const = default;
};

/// One value per lane. Of forward-only schedules: what is held is the one activation at work.
std::vector<LanePeaks> lane_peaks(const Schedule& schedule);

/// The most distinct weight versions that each stage holds: those of forwards in flight, and the newest.
std::vector<int> versions_held(const Schedule& schedule);

}  // namespace troika

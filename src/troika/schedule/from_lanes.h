// What lanes say by themselves: readers of files read lanes and ask here for the rest of the schedule. Pure;
// thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

/// Where an action was read, for messages: "lanes.txt:3: action 5".
using PlaceOf = std::function<std::string(size_t lane, size_t step)>;

/// A schedule of kind train with these lanes, its stages a chain with one version each. A stage stands in the
/// lane of its first action, one without any in none (-1), which validate() reports; the k-th R of a stage is
/// that of update k, and so is its k-th O. Throws Error where a number is too large to be true: nothing is as
/// large as a number that a file names.
Schedule schedule_from_lanes(std::vector<Lane> lanes, const PlaceOf& place_of);

/// The kinds of action that stand in the lanes.
Stated stated_in(const std::vector<Lane>& lanes);

/// Per stage; empty if no stage is.
std::vector<bool> recomputed_in(const std::vector<Lane>& lanes, size_t stages);

/// The most R or O of a stage, by their numbers; at least 1.
int updates_in(const std::vector<Lane>& lanes);

}  // namespace troika

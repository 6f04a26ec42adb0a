// Which schedule a run's pipeline follows: one of the catalogue, or a user's own from a file. Threading: pure
// but for reading the file.
#pragma once

#include <functional>
#include <string>

#include "troika/schedule/schedule.h"
#include "troika/train/recipe.h"

namespace troika {

struct ScheduleChoice {
  std::string name;   // of the catalogue, or the file's path
  Schedule schedule;  // of a step; if asynchronous, of a window that holds as many versions as any
  /// Asynchronous only: of a window of so many steps.
  std::function<Schedule(int steps)> window = {};
  int64_t longest_window = 0;  // steps; 0: any. A file's window has no more
};

/// Throws UsageError for numbers that the schedule doesn't take, for a file that is no valid schedule or one
/// of other lanes or micro-batches, and for keys that mean nothing with it.
ScheduleChoice choose_schedule(const ParallelRecipe& parallel);

}  // namespace troika

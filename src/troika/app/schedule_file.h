// Schedules from files and standard input, for `troika schedule`.
#pragma once

#include <string>
#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

bool is_in_catalogue(const std::string& name);

struct LoadedSchedule {
  std::string name;  // the path, or "standard input"
  Schedule schedule;
  std::vector<std::string> notes;  // what was dropped
};

/// The text form, or CSV where the file is called .csv or its first line has a comma; "-" is standard input.
/// Throws UsageError with the nearest name of the catalogue if there is no such file, Error if it can't be
/// read.
LoadedSchedule load_schedule(const std::string& path);

}  // namespace troika

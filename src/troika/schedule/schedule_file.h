// Schedules from files and standard input. Threading: functions; standard input is read once.
#pragma once

#include <string>
#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

bool is_in_catalogue(const std::string& name);

/// Whether a word that should name a schedule is a path: it has a slash, or an ending.
bool is_schedule_file(const std::string& word);

struct LoadedSchedule {
  std::string name;  // the path, or "standard input"
  Schedule schedule;
  std::vector<std::string> notes;  // what was dropped
};

/// A schedule that is read and not yet understood.
struct ScheduleSource {
  std::string name;  // the path, or "standard input"
  std::string text;
  bool named_csv = false;
};

/// "-" is standard input. Throws UsageError with the nearest name of the catalogue if there is no such file,
/// Error if it can't be read.
ScheduleSource read_schedule(const std::string& path);

/// The text form, or CSV where the file is called .csv or its first line has a comma. Throws Error naming the
/// place if it is neither.
LoadedSchedule parse_source(const ScheduleSource& source);

/// A file of a length that a person may have meant. Throws Error.
std::string read_bounded(const std::string& path);

}  // namespace troika

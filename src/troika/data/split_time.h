// Where to cut rows into earlier and later parts, so that the parts come as near as possible to the asked-for
// shares. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troika {

/// Train is what is before `validation_from`, test what is from `test_from` on, validation lies between.
struct TimeCuts {
  int64_t validation_from = 0;
  int64_t test_from = 0;
};

/// Cuts between whole days; `rows_of_day` has a day's first nanosecond -> its rows. nullopt if a part that
/// was asked for (share above 0) or train can't have a day of its own.
std::optional<TimeCuts> cut_days(const std::map<int64_t, int64_t>& rows_of_day, double validation,
                                 double test);

/// Cuts between two different times; reorders `times`. nullopt likewise.
std::optional<TimeCuts> cut_times(std::vector<int64_t>& times, double validation, double test);

/// The UTC day's first nanosecond.
int64_t day_of(int64_t nanoseconds);

/// "2013-10-19".
std::string iso_date(int64_t nanoseconds);

}  // namespace troika

// Time: one monotonic clock, seconds as double where people read them, and deadlines for everything that
// waits.
#pragma once

#include <chrono>

namespace troika {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

inline double seconds_since(Clock::time_point from) { return seconds_between(from, Clock::now()); }

inline Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace troika

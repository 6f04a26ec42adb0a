// A trace made ready for drawing: checked, lane by lane in order of time, with the stages of each lane. Also
// the marks of a time axis. Shared by the drawings. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troika/trace/trace.h"

namespace troika {

struct TraceLane {
  std::vector<Span> spans;  // by start; of those that start together the longest first
  std::vector<int> stages;  // those that occur, ascending
  /// Which of the lane's stages: 0 is the earliest.
  int chunk_of(int stage) const;
};

/// One per rank. Asserts that ranks are in range, times are finite, not negative and in order, and memory is
/// of no rank or of all.
std::vector<TraceLane> lanes_of(const Trace& trace);

/// The most stages that one lane has; 1 of a trace without spans.
int most_chunks(const std::vector<TraceLane>& lanes);

/// Whether the span has a width. What has none (a message in a simulation) is no box and no cell.
bool takes_time(const Span& span);

/// The unit in which a whole axis is written, so that its numbers compare at a glance.
struct TimeUnit {
  std::string_view name;  // "ms"; "" for plain numbers
  double seconds = 1;
};

TimeUnit unit_for(double duration, bool seconds);

/// 1, 2 or 5 times a power of ten: the smallest with at most `most_marks` steps in `duration`.
double round_step(double duration, double most_marks);

/// `at` in `unit`, with the decimals that marks `step` apart need.
std::string mark_text(double at, double step, const TimeUnit& unit);

/// A duration in people's words: "2.5 ms", or "2.5" without a unit.
std::string duration_text(double duration, bool seconds);

}  // namespace troika

// Trace: what happened when, one lane per rank. Values; thread-safe as such.
#pragma once

#include <string>
#include <vector>

#include "troika/schedule/action.h"

namespace troika {

/// One action on one rank; seconds from the trace's start.
struct Span {
  int rank = 0;
  Action action;
  double start_s = 0;
  double end_s = 0;
};

struct Trace {
  int ranks = 1;
  std::vector<Span> spans;  // any order
  double duration_s() const;
};

/// One figure of one or more traces under each other on a common time axis: lanes, coloured actions, gaps
/// visible, legend. `titles` has one entry per trace.
std::string draw_svg(const std::vector<Trace>& traces, const std::vector<std::string>& titles);

}  // namespace troika

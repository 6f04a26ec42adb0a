// Trace: what happened when, one lane per rank; from the simulator or from a real run. Values; thread-safe as
// such.
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
  bool operator==(const Span&) const = default;
};

/// From `at_s` on, until the next one.
struct MemoryLevel {
  double at_s = 0;
  double bytes = 0;
  bool operator==(const MemoryLevel&) const = default;
};

struct Trace {
  int ranks = 1;
  std::vector<Span> spans;                            // any order
  std::vector<std::vector<MemoryLevel>> memory = {};  // per rank, ascending in time; empty: not known
  double duration_s() const;
};

}  // namespace troika

// Drawings of traces: a figure, text for a terminal, slices for a trace viewer. Simulated and measured ones
// are drawn by the same code. All assert that a trace is sound: ranks in range, times finite, not negative,
// in order. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troika/base/mesh.h"
#include "troika/trace/trace.h"

namespace troika {

struct SvgOptions {
  std::string lane_name = "rank";  // "lane" where lanes are drawn, not ranks
  bool seconds = true;  // false: times and bytes are numbers without a unit (a simulation in units of a pass)
};

/// One figure of one or more traces under each other on a common time axis: lanes, coloured actions, gaps
/// visible, legend of what occurs; below a trace with memory, a curve per rank. What takes no time (a message
/// in a simulation) is not drawn. Thousands of spans stay a file that opens: those too narrow to see are
/// drawn together. `titles` has one entry per trace.
std::string draw_svg(const std::vector<Trace>& traces, const std::vector<std::string>& titles,
                     const SvgOptions& options = {});

struct TextOptions {
  int width = 100;      // columns, at least 20; no line is longer
  bool colour = false;  // ANSI; for terminals only
  bool seconds = true;  // as in SvgOptions
  std::string lane_name = "rank";
};

/// Lanes as lines, time to the right, to scale; bubbles are dots. Labels as far as they fit; where not even a
/// column per pass fits, several blocks of lines; where that would be more than six, letters in proportion to
/// the time they take.
std::string draw_text(const Trace& trace, const TextOptions& options = {});

struct ChromeOptions {
  std::string lane_name = "rank";  // as in SvgOptions
  std::optional<Mesh> mesh = {};   // of the ranks: names where each stands, and whose messages are whose
};

/// Trace event JSON as Chrome and Perfetto open it, with the keys of PyTorch's profiler: a process per trace,
/// a thread per rank, a complete event per action (nested slices stay nested; one that overlaps another
/// otherwise stands on a thread beside it), an instant event per message that takes no time, a counter per
/// rank for memory, a flow arrow per message where both ends are in the trace. Throws Error if the trace is
/// longer than nanoseconds in 64 bits can say.
std::string chrome_json(const Trace& trace, const std::string& name, const ChromeOptions& options = {});

}  // namespace troika

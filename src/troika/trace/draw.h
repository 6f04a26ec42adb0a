// Drawings of traces: a figure, text for a terminal, slices for a trace viewer. Simulated and measured ones
// are drawn by the same code. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "troika/trace/trace.h"

namespace troika {

struct SvgOptions {
  std::string lane_name = "rank";  // "lane" where lanes are drawn, not ranks
  bool seconds = true;  // false: times are numbers without a unit (a simulation in units of a pass)
};

/// One figure of one or more traces under each other on a common time axis: lanes, coloured actions, gaps
/// visible, legend of what occurs; below a trace with memory, a curve per rank. `titles` has one entry per
/// trace.
std::string draw_svg(const std::vector<Trace>& traces, const std::vector<std::string>& titles,
                     const SvgOptions& options = {});

struct TextOptions {
  int width = 100;      // columns
  bool colour = false;  // ANSI; for terminals only
  bool seconds = true;  // as in SvgOptions
  std::string lane_name = "rank";
};

/// Lanes as lines, time to the right, to scale; bubbles are dots. Labels as far as they fit.
std::string draw_text(const Trace& trace, const TextOptions& options = {});

/// Trace event JSON as Chrome and Perfetto open it: a process per trace, a thread per rank, a complete event
/// per action (nested slices stay nested), a counter per rank for memory, a flow arrow per message where both
/// ends are in the trace.
std::string chrome_json(const Trace& trace, const std::string& name, const std::string& lane_name = "rank");

}  // namespace troika

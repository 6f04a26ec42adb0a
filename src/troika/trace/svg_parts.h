// The parts of the figure that draw_svg() puts together. All return SVG elements without the frame. Pure;
// thread-safe.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "troika/trace/draw.h"
#include "troika/trace/lanes.h"

namespace troika {

/// Where times stand: `seconds` are `width` units of the picture wide, from `left` on.
struct SvgPlot {
  double left = 0;
  double width = 0;
  double seconds = 1;
  double x(double at) const { return left + at / seconds * width; }
};

/// Heights by the number of lanes: many lanes are thin.
struct LaneSize {
  double height = 26;
  double gap = 5;
  double memory_height = 24;
  double step() const { return height + gap; }
  double memory_step() const { return memory_height + gap; }
};

LaneSize lane_size(int lanes);

/// Text for an XML document: markup is escaped, what is not UTF-8 or not printable is written as \xNN.
std::string svg_text(const std::string& text);

/// Characters, not bytes, of UTF-8.
size_t characters_in(const std::string& text);

/// The lanes of one trace from `top` down. `dense`: so many spans that they get no tooltips and those too
/// narrow to see are drawn together.
std::string svg_lanes(const std::vector<TraceLane>& lanes, double duration, const SvgPlot& plot, double top,
                      const SvgOptions& options, bool dense);

/// A step curve per lane on a common scale, its peak beside it.
std::string svg_memory(const Trace& trace, const SvgPlot& plot, double top, const SvgOptions& options);

/// The legend's entries for these kinds of action, in as many lines as it takes; `height` becomes theirs.
std::string svg_legend(const std::set<Op>& ops, int chunks, const SvgPlot& plot, double top,
                       const SvgOptions& options, double& height);

}  // namespace troika

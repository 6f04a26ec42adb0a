#include "troika/trace/text_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace troika {
namespace {

// A part of a lane's time in which one span is at work.
struct Segment {
  int span = 0;
  double start = 0;
  double end = 0;
};

// Spans may stand within each other (a part measured within a pass); the one that started last is at work.
std::vector<Segment> segments_of(const std::vector<Span>& spans) {
  std::vector<Segment> segments;
  std::vector<int> open;
  double at = 0;
  const auto work_until = [&](double until) {
    while (!open.empty()) {
      const int top = open.back();
      const double end = std::min(until, spans[static_cast<size_t>(top)].end_s);
      if (end > at) segments.push_back({top, at, end});
      at = std::max(at, end);
      if (spans[static_cast<size_t>(top)].end_s > until) return;
      open.pop_back();
    }
  };
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!takes_time(spans[i])) continue;
    work_until(spans[i].start_s);
    at = spans[i].start_s;
    open.push_back(static_cast<int>(i));
  }
  work_until(std::numeric_limits<double>::infinity());
  return segments;
}

double common_divisor(double a, double b, double tolerance) {
  while (b > tolerance) {
    const double rest = std::fmod(a, b);
    a = b;
    b = a - rest <= tolerance ? 0 : rest;
  }
  return a;
}

// The largest time of which all times are multiples, but for rounding; 0 if it would be shorter than
// duration / most_units.
double common_unit(const std::vector<TraceLane>& lanes, double duration, double most_units) {
  double unit = duration;
  for (const TraceLane& lane : lanes) {
    for (const Span& span : lane.spans) {
      unit = common_divisor(unit, span.start_s, 1e-6 * duration);
      unit = common_divisor(unit, span.end_s, 1e-6 * duration);
      if (unit * most_units < duration * (1 - 1e-6)) return 0;
    }
  }
  unit = duration / std::round(duration / unit);
  for (const TraceLane& lane : lanes) {
    for (const Span& span : lane.spans) {
      const double multiple = span.end_s / unit;
      if (std::abs(multiple - std::round(multiple)) > 1e-3) return 0;
    }
  }
  return unit;
}

}  // namespace

ColumnScale column_scale(const std::vector<TraceLane>& lanes, double duration, int width, int longest_label,
                         int most_blocks) {
  double shortest = duration, shortest_pass = duration;
  for (const TraceLane& lane : lanes) {
    for (const Span& span : lane.spans) {
      if (!takes_time(span)) continue;
      const double length = span.end_s - span.start_s;
      shortest = std::min(shortest, length);
      if (is_pass(span.action.op)) shortest_pass = std::min(shortest_pass, length);
    }
  }
  const double needed = duration / shortest_pass;
  ColumnScale scale;
  if (needed > static_cast<double>(width) * most_blocks * (1 + 1e-9)) {
    scale = {width / duration, width, true};
    return scale;
  }
  const double room = width * std::max(1.0, std::ceil(needed / width - 1e-6));
  const double useful = (longest_label + 1) / shortest;
  scale.per_second = std::min(room / duration, useful);
  const double unit = common_unit(lanes, duration, room);
  if (unit > 0) {
    const double per_unit = std::floor(std::min(room / (duration / unit), std::ceil(useful * unit)) + 1e-6);
    if (per_unit >= 1) scale.per_second = per_unit / unit;
  }
  scale.columns = std::max(1, static_cast<int>(std::ceil(duration * scale.per_second - 1e-6)));
  return scale;
}

namespace {

using Kind = std::pair<int, int>;  // operation and stage of the lane, or the span itself

struct Share {
  double time = 0;  // in columns
  int span = -1;
};

constexpr Kind kIdle = {-1, 0};

// What each column is made of; the shares of one add up to 1.
std::vector<std::map<Kind, Share>> shares_of(const TraceLane& lane, const ColumnScale& scale) {
  const auto columns = static_cast<size_t>(scale.columns);
  std::vector<std::map<Kind, Share>> shares(columns, {{kIdle, {1.0, -1}}});
  for (const Segment& segment : segments_of(lane.spans)) {
    const double from = segment.start * scale.per_second, until = segment.end * scale.per_second;
    const Action& action = lane.spans[static_cast<size_t>(segment.span)].action;
    const Kind kind = scale.occupancy ? Kind{static_cast<int>(action.op), lane.chunk_of(action.stage)}
                                      : Kind{segment.span, 0};
    for (auto at = static_cast<size_t>(from); at < columns && static_cast<double>(at) < until; ++at) {
      const double part =
          std::min(until, static_cast<double>(at + 1)) - std::max(from, static_cast<double>(at));
      Share& share = shares[at][kind];
      share.time += part;
      share.span = segment.span;
      shares[at][kIdle].time -= part;
    }
  }
  return shares;
}

}  // namespace

std::vector<int> columns_of(const TraceLane& lane, const ColumnScale& scale) {
  std::vector<int> shown;
  std::map<Kind, double> owed;  // with occupancy: the time of each kind that no column has shown yet
  for (const auto& column : shares_of(lane, scale)) {
    if (!scale.occupancy) owed.clear();
    for (const auto& [kind, share] : column) owed[kind] += share.time;
    // Of two with the same share the later one: the earlier had the column before.
    auto most = owed.find(kIdle);
    for (auto one = owed.begin(); one != owed.end(); ++one) {
      if (column.count(one->first) && one->second > most->second - 1e-6) most = one;
    }
    shown.push_back(column.at(most->first).span);
    most->second -= 1;
  }
  return shown;
}

}  // namespace troika

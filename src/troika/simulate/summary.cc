#include <algorithm>
#include <limits>

#include "troika/base/error.h"
#include "troika/simulate/simulate.h"

namespace troika {
namespace {

// What one lane did.
struct Work {
  double first_pass_s = std::numeric_limits<double>::infinity();
  double last_pass_s = 0;
  double busy_s = 0;          // of the whole step
  double busy_in_span_s = 0;  // from its first pass to the end of its last

  double span_s() const { return std::max(0.0, last_pass_s - first_pass_s); }
};

std::vector<Work> work_of_lanes(const Schedule& schedule, const Trace& trace) {
  std::vector<Work> lanes(static_cast<size_t>(schedule.num_lanes()));
  for (const Span& span : trace.spans) {
    if (span.rank < 0 || span.rank >= schedule.num_lanes()) {
      fail("a trace of this schedule has spans of {} lanes, got one of lane {}", schedule.num_lanes(),
           span.rank);
    }
    if (!is_pass(span.action.op)) continue;
    Work& lane = lanes[static_cast<size_t>(span.rank)];
    lane.first_pass_s = std::min(lane.first_pass_s, span.start_s);
    lane.last_pass_s = std::max(lane.last_pass_s, span.end_s);
  }
  for (const Span& span : trace.spans) {
    if (is_message(span.action.op)) continue;
    Work& lane = lanes[static_cast<size_t>(span.rank)];
    const double seconds = span.end_s - span.start_s;
    lane.busy_s += seconds;
    if (span.start_s >= lane.first_pass_s && span.end_s <= lane.last_pass_s) lane.busy_in_span_s += seconds;
  }
  return lanes;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Never below 0, where it would only be rounding.
double idle_part(double busy, double whole) { return whole > 0 ? std::max(0.0, 1 - busy / whole) : 0; }

int64_t messages_of(const Schedule& schedule) {
  const auto crosses = [&](const Edge& edge) { return schedule.crosses_lanes(edge); };
  const int64_t directions = schedule.kind == Kind::train ? 2 : 1;
  return std::ranges::count_if(schedule.edges, crosses) * directions * schedule.num_micro_batches;
}

}  // namespace

Summary summarize(const Schedule& schedule, const Trace& trace) {
  Summary summary;
  summary.messages = messages_of(schedule);
  summary.peaks = lane_peaks(schedule);
  for (const Span& span : trace.spans) summary.makespan_s = std::max(summary.makespan_s, span.end_s);
  double busy = 0, busy_in_span = 0;
  for (const Work& lane : work_of_lanes(schedule, trace)) {
    summary.cost_s = std::max(summary.cost_s, lane.span_s());
    summary.utilization.push_back(ratio(lane.busy_s, summary.makespan_s));
    busy += lane.busy_s;
    busy_in_span += lane.busy_in_span_s;
  }
  const double lanes = std::max(1, schedule.num_lanes());
  summary.bubble_rate = idle_part(busy_in_span / lanes, summary.cost_s);
  summary.bubble_rate_makespan = idle_part(busy / lanes, summary.makespan_s);
  return summary;
}

}  // namespace troika

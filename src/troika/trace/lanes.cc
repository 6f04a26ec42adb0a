#include "troika/trace/lanes.h"

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

void check(const Trace& trace) {
  TROIKA_ASSERT(trace.ranks >= 0, fmt::format("{} ranks", trace.ranks));
  for (const Span& span : trace.spans) {
    TROIKA_ASSERT(span.rank >= 0 && span.rank < trace.ranks,
                  fmt::format("{} on rank {} of {}", to_string(span.action), span.rank, trace.ranks));
    TROIKA_ASSERT(std::isfinite(span.start_s) && std::isfinite(span.end_s) && span.start_s >= 0 &&
                      span.end_s >= span.start_s,
                  fmt::format("{} on rank {} from {} to {}", to_string(span.action), span.rank, span.start_s,
                              span.end_s));
  }
  TROIKA_ASSERT(trace.memory.empty() || trace.memory.size() == static_cast<size_t>(trace.ranks),
                fmt::format("memory of {} ranks, {} ranks", trace.memory.size(), trace.ranks));
  for (const std::vector<MemoryLevel>& levels : trace.memory) {
    double last = 0;
    for (const MemoryLevel& level : levels) {
      TROIKA_ASSERT(std::isfinite(level.at_s) && level.at_s >= last && std::isfinite(level.bytes),
                    fmt::format("memory {} at {} after {}", level.bytes, level.at_s, last));
      last = level.at_s;
    }
  }
}

}  // namespace

int TraceLane::chunk_of(int stage) const {
  return static_cast<int>(std::lower_bound(stages.begin(), stages.end(), stage) - stages.begin());
}

std::vector<TraceLane> lanes_of(const Trace& trace) {
  check(trace);
  std::vector<TraceLane> lanes(static_cast<size_t>(trace.ranks));
  for (const Span& span : trace.spans) {
    TraceLane& lane = lanes[static_cast<size_t>(span.rank)];
    lane.spans.push_back(span);
    lane.stages.push_back(span.action.stage);
  }
  for (TraceLane& lane : lanes) {
    std::stable_sort(lane.spans.begin(), lane.spans.end(), [](const Span& a, const Span& b) {
      return a.start_s != b.start_s ? a.start_s < b.start_s : a.end_s > b.end_s;
    });
    std::sort(lane.stages.begin(), lane.stages.end());
    lane.stages.erase(std::unique(lane.stages.begin(), lane.stages.end()), lane.stages.end());
  }
  return lanes;
}

int most_chunks(const std::vector<TraceLane>& lanes) {
  size_t most = 1;
  for (const TraceLane& lane : lanes) most = std::max(most, lane.stages.size());
  return static_cast<int>(most);
}

bool takes_time(const Span& span) { return span.end_s > span.start_s; }

TimeUnit unit_for(double duration, bool seconds) {
  if (!seconds) return {"", 1};
  if (duration < 1e-6) return {"ns", 1e-9};
  if (duration < 1e-3) return {"us", 1e-6};
  if (duration < 1) return {"ms", 1e-3};
  if (duration < 600) return {"s", 1};
  return {"min", 60};
}

double round_step(double duration, double most_marks) {
  const double power = std::pow(10.0, std::floor(std::log10(duration / most_marks)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (duration <= factor * power * most_marks * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string mark_text(double at, double step, const TimeUnit& unit) {
  if (at == 0) return "0";
  const double size = step / unit.seconds;
  if (at / unit.seconds >= 1e7 || size < 1e-5) return fmt::format("{:.4g}", at / unit.seconds);
  const double decimals = std::max(0.0, -std::floor(std::log10(size) + 1e-9));
  return fmt::format("{:.{}f}", at / unit.seconds, std::min(9, static_cast<int>(decimals)));
}

std::string duration_text(double duration, bool seconds) {
  return seconds ? human_seconds(duration) : fmt::format("{:.6g}", duration);
}

}  // namespace troika

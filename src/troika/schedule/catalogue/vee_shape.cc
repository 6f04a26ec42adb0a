#include "troika/schedule/catalogue/vee_shape.h"

#include <algorithm>
#include <cmath>

namespace troika::vee {
namespace {

constexpr int kMostParts = 10'000;  // of the longest time, in search of exact ratios
constexpr double kExact = 1e-7;     // of a part
constexpr int kRoundedParts = 1 << 20;

// Into how many parts the longest time is cut, so that all times are whole numbers of them.
int parts_of(const std::array<double, 4>& times, double longest) {
  for (int parts = 1; parts <= kMostParts; ++parts) {
    const bool exact = std::all_of(times.begin(), times.end(), [&](double time) {
      const double in_parts = time / longest * parts;
      return std::abs(in_parts - std::round(in_parts)) <= kExact;
    });
    if (exact) return parts;
  }
  return kRoundedParts;
}

}  // namespace

Shape make_shape(const ScheduleRequest& request, int most_held) {
  Shape shape = {.lanes = request.lanes, .micro_batches = request.micro_batches, .most_held = most_held};
  const PassTimes& given = request.times;
  // Messages of any length don't help where passes take no time: what counts is the passes.
  const double longest = std::max({given.forward_s, given.input_s, given.weight_s});
  if (!(longest > 0)) return shape;
  const double message = std::min(given.message_s, longest * kMostParts);
  const std::array<double, 4> times = {given.forward_s, given.input_s, given.weight_s, message};
  const double parts = parts_of(times, longest);
  const auto ticks = [&](double time) { return static_cast<Ticks>(std::llround(time / longest * parts)); };
  shape.forward = ticks(times[0]);
  shape.input = ticks(times[1]);
  shape.weight = ticks(times[2]);
  shape.message = ticks(times[3]);
  return shape;
}

}  // namespace troika::vee

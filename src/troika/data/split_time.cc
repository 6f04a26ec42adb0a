#include "troika/data/split_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

namespace troika {
namespace {

constexpr int64_t kDay = 86'400'000'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Days since 1970, rounded down.
int64_t day_number(int64_t nanoseconds) { return nanoseconds / kDay - (nanoseconds % kDay < 0 ? 1 : 0); }

// A cut in front of `from` leaves `before` rows before it.
struct Cut {
  int64_t from;
  double before;
};

// Takes the nearer one to `target`; the earlier one of two as near.
void improve(std::optional<Cut>& best, Cut candidate, double target) {
  if (!best || std::abs(candidate.before - target) < std::abs(best->before - target)) best = candidate;
}

// Among the cuts in front of days number [first, last] of `days` (begin, rows before it).
std::optional<Cut> nearest_day(const std::vector<Cut>& days, size_t first, size_t last, double target) {
  std::optional<Cut> best;
  for (size_t k = first; k <= last && k < days.size(); ++k) improve(best, days[k], target);
  return best;
}

// Between different values of `times`, with at least one on either side; and at least two different ones
// before it if `two_before`.
std::optional<Cut> nearest_time(std::span<int64_t> times, double target, bool two_before) {
  if (times.empty()) return std::nullopt;
  const auto rank = std::clamp<int64_t>(std::llround(target), 0, static_cast<int64_t>(times.size()) - 1);
  const auto [low, high] = std::minmax_element(times.begin(), times.end());
  const int64_t first = *low;
  const int64_t last = *high;
  std::nth_element(times.begin(), times.begin() + rank, times.end());
  const int64_t pivot = times[static_cast<size_t>(rank)];
  std::optional<Cut> best;
  const auto consider = [&](int64_t from) {
    if (from <= first || from > last) return;
    const auto before = std::count_if(times.begin(), times.end(), [&](int64_t time) { return time < from; });
    improve(best, {from, static_cast<double>(before)}, target);
  };
  consider(pivot);
  if (pivot < kNever) consider(pivot + 1);
  // What is before the cut must itself be divisible: then it ends after the second time, not before.
  const auto different = [&](int64_t from) {
    return std::any_of(times.begin(), times.end(),
                       [&](int64_t time) { return time < from && time != first; });
  };
  if (best && two_before && !different(best->from)) {
    best.reset();
    int64_t second = last;
    for (const int64_t time : times) {
      if (time > first) second = std::min(second, time);
    }
    if (second < last) consider(second + 1);
  }
  return best;
}

}  // namespace

std::optional<TimeCuts> cut_days(const std::map<int64_t, int64_t>& rows_of_day, double validation,
                                 double test) {
  std::vector<Cut> days;
  double rows = 0;
  for (const auto& [day, count] : rows_of_day) {
    days.push_back({day, rows});
    rows += static_cast<double>(count);
  }
  // Each part that was asked for needs a day; train has the first.
  const size_t parts = 1 + (validation > 0) + (test > 0);
  if (days.size() < parts) return std::nullopt;
  size_t test_day = days.size();
  TimeCuts cuts{kNever, kNever};
  if (test > 0) {
    const auto cut = nearest_day(days, parts - 1, days.size() - 1, rows * (1 - test));
    cuts.test_from = cut->from;
    test_day = static_cast<size_t>(std::distance(rows_of_day.begin(), rows_of_day.find(cut->from)));
  }
  cuts.validation_from = cuts.test_from;
  if (validation > 0)
    cuts.validation_from = nearest_day(days, 1, test_day - 1, rows * (1 - test - validation))->from;
  return cuts;
}

std::optional<TimeCuts> cut_times(std::vector<int64_t>& times, double validation, double test) {
  const auto rows = static_cast<double>(times.size());
  TimeCuts cuts{kNever, kNever};
  std::span<int64_t> before_test(times);
  if (test > 0) {
    const auto cut = nearest_time(times, rows * (1 - test), validation > 0);
    if (!cut) return std::nullopt;
    cuts.test_from = cut->from;
    const auto end =
        std::partition(times.begin(), times.end(), [&](int64_t time) { return time < cut->from; });
    before_test = std::span(times).first(static_cast<size_t>(end - times.begin()));
  }
  cuts.validation_from = cuts.test_from;
  if (validation > 0) {
    const auto cut = nearest_time(before_test, rows * (1 - test - validation), false);
    if (!cut) return std::nullopt;
    cuts.validation_from = cut->from;
  }
  return cuts;
}

int64_t day_of(int64_t nanoseconds) {
  const int64_t day = day_number(nanoseconds);
  constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();
  return day < kFirst / kDay ? kFirst : day * kDay;  // the range's first day isn't whole
}

std::string iso_date(int64_t nanoseconds) {
  const std::chrono::year_month_day date(std::chrono::sys_days(std::chrono::days(day_number(nanoseconds))));
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

}  // namespace troika

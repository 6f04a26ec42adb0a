// Count, mean, spread and range of numbers, in parts that add up. The result depends on the parts and their
// order only, so a fixed cutting of the data gives the same bits on any number of threads. A value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace troika {

struct Moments {
  int64_t count = 0;
  double mean = 0;
  double squares = 0;  // sum of squared deviations from the mean
  double minimum = 0, maximum = 0;

  double deviation() const { return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count)); }

  /// Chan's formula for two parts.
  void add(const Moments& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const auto mine = static_cast<double>(count), theirs = static_cast<double>(other.count);
    const double difference = other.mean - mean, total = mine + theirs;
    mean += difference * (theirs / total);
    squares += other.squares + difference * difference * (mine * theirs / total);
    minimum = std::min(minimum, other.minimum);
    maximum = std::max(maximum, other.maximum);
    count += other.count;
  }
};

/// Two passes over values that are all finite.
inline Moments moments_of(std::span<const double> values) {
  Moments part;
  if (values.empty()) return part;
  part.count = static_cast<int64_t>(values.size());
  part.minimum = part.maximum = values.front();
  double sum = 0;
  for (const double value : values) {
    sum += value;
    part.minimum = std::min(part.minimum, value);
    part.maximum = std::max(part.maximum, value);
  }
  part.mean = sum / static_cast<double>(part.count);
  for (const double value : values) part.squares += (value - part.mean) * (value - part.mean);
  return part;
}

}  // namespace troika

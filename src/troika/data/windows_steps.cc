#include <algorithm>
#include <bit>

#include "troika/data/windows_scan.h"

namespace troika {
namespace {

constexpr int kBucketBits = 10;  // an octave is 1,024 buckets

// Numbers below 2^11 have a bucket each; above, those that share their first 11 bits.
size_t bucket_of(uint64_t step) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(step)) - kBucketBits - 1);
  return (static_cast<size_t>(shift) << kBucketBits) + static_cast<size_t>(step >> shift);
}

}  // namespace

StepHistogram::StepHistogram() : buckets_(bucket_of(~uint64_t{0}) + 1) {}

void StepHistogram::add(uint64_t step) {
  Bucket& bucket = buckets_[bucket_of(step)];
  bucket.lowest = bucket.count == 0 ? step : std::min(bucket.lowest, step);
  bucket.highest = std::max(bucket.highest, step);
  ++bucket.count;
  ++count_;
}

double StepHistogram::median() const {
  if (count_ == 0) return 0;
  int64_t rank = (count_ - 1) / 2;
  for (const Bucket& bucket : buckets_) {
    if (rank >= bucket.count) {
      rank -= bucket.count;
      continue;
    }
    const auto lowest = static_cast<double>(bucket.lowest);
    const double share =
        bucket.count == 1 ? 0 : static_cast<double>(rank) / static_cast<double>(bucket.count - 1);
    return lowest + share * static_cast<double>(bucket.highest - bucket.lowest);
  }
  return 0;
}

}  // namespace troika

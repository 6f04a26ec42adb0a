// What makes a search give the same order on every machine: times in whole numbers, so that sums are exact
// and two orders that take equally long compare equal, and random bits of its own, which the standard
// library's distributions don't promise. One thread at a time.
#pragma once

#include <cstdint>
#include <limits>

namespace troika {

using Ticks = int64_t;
inline constexpr Ticks kNever = std::numeric_limits<Ticks>::max() / 4;

/// Marsaglia's xorshift64 (2003, doi.org/10.18637/jss.v008.i14). The state must not be 0.
class Xorshift {
 public:
  explicit Xorshift(uint64_t state) : state_(state) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_;
};

}  // namespace troika

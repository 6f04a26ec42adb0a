// Counter-based random numbers: a number is a pure function of (key, counter), so it doesn't depend on ranks,
// threads or what was drawn before. Philox4x32-10 after Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (SC'11). Pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace troika {

/// xxHash64 of `bytes`; the hash behind every key and checksum.
uint64_t hash64(std::string_view bytes, uint64_t seed = 0);

/// A key from several numbers, order-sensitive.
uint64_t mix_keys(uint64_t a, uint64_t b);

/// Four independent 32-bit numbers.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);

/// Uniform in [0, 1), 53 bits.
double uniform(uint64_t key, uint64_t counter);

/// A keyed permutation of [0, size), evaluated one position at a time, without a table (a Feistel network
/// that walks the cycle back into range).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);
  uint64_t size() const { return size_; }
  uint64_t operator()(uint64_t position) const;

 private:
  uint64_t size_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace troika

#include "troika/base/random.h"

#include <xxhash.h>

#include <bit>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr int kFeistelRounds = 6;

// splitmix64's finaliser: every input bit reaches every output bit.
uint64_t scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t hash64(std::string_view bytes, uint64_t seed) { return XXH64(bytes.data(), bytes.size(), seed); }

uint64_t mix_keys(uint64_t a, uint64_t b) { return scramble(scramble(a) ^ (b + 0x632BE59BD9B4E019u)); }

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                               static_cast<uint32_t>(counter_high),
                               static_cast<uint32_t>(counter_high >> 32)};
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

double uniform(uint64_t key, uint64_t counter) {
  const auto x = philox(key, 0, counter);
  const uint64_t bits = (uint64_t{x[0]} << 32 | x[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

Permutation::Permutation(uint64_t size, uint64_t key)
    : size_(size), key_(key), half_bits_((std::bit_width(size > 1 ? size - 1 : 1) + 1) / 2) {}

uint64_t Permutation::operator()(uint64_t position) const {
  TROIKA_ASSERT(position < size_, fmt::format("position {} of {}", position, size_));
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = position >> half_bits_;
    uint64_t right = position & mask;
    for (int round = 0; round < kFeistelRounds; ++round) {
      const uint64_t next = left ^ (scramble(right ^ mix_keys(key_, static_cast<uint64_t>(round))) & mask);
      left = right;
      right = next;
    }
    position = left << half_bits_ | right;
  } while (position >= size_);  // at most 4 x size values, so a few walks on average
  return position;
}

}  // namespace troika

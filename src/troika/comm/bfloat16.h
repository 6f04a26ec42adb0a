// bfloat16 as bits: the upper half of a float32. Pure functions; branch-free, so that loops over them
// vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace troika {

inline float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Nearest, ties to even; a NaN stays a NaN (made quiet, so that cutting its payload can't make it an
/// infinity).
inline uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? quiet : rounded);
}

}  // namespace troika

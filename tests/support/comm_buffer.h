// Typed elements for tests of communicators, read and written as double.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "troika/comm/bfloat16.h"
#include "troika/comm/communicator.h"

namespace troika::testing {

inline const std::vector<ElementType> kAllTypes = {ElementType::float32, ElementType::float64,
                                                   ElementType::bfloat16, ElementType::int64};

class Buffer {
 public:
  Buffer(ElementType type, int64_t count)
      : type_(type), count_(count), bytes_(static_cast<size_t>(count * size_of(type))) {}

  Elements elements() { return {bytes_.empty() ? nullptr : bytes_.data(), count_, type_}; }
  Elements part(int64_t begin, int64_t count) {
    return {bytes_.data() + begin * size_of(type_), count, type_};
  }
  int64_t count() const { return count_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  void set(int64_t index, double value) {
    switch (type_) {
      case ElementType::float32:
        return put(index, static_cast<float>(value));
      case ElementType::float64:
        return put(index, value);
      case ElementType::bfloat16:
        return put(index, float_to_bfloat16(static_cast<float>(value)));
      case ElementType::int64:
        return put(index, static_cast<int64_t>(value));
    }
  }

  double get(int64_t index) const {
    switch (type_) {
      case ElementType::float32:
        return take<float>(index);
      case ElementType::float64:
        return take<double>(index);
      case ElementType::bfloat16:
        return bfloat16_to_float(take<uint16_t>(index));
      case ElementType::int64:
        return static_cast<double>(take<int64_t>(index));
    }
    return 0;
  }

  template <typename Function>
  Buffer& fill(Function value_at) {
    for (int64_t i = 0; i < count_; ++i) set(i, value_at(i));
    return *this;
  }

 private:
  template <typename T>
  void put(int64_t index, T value) {
    std::memcpy(bytes_.data() + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }
  template <typename T>
  T take(int64_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
  }

  ElementType type_;
  int64_t count_;
  std::vector<std::byte> bytes_;
};

/// Small whole numbers that differ by rank and place: their sums are exact in every type.
inline double whole_number(int rank, int64_t index) {
  return static_cast<double>((index * 7 + rank * 13) % 31 - 15);
}

/// Numbers whose sum depends on the order.
inline double uneven_number(int rank, int64_t index, uint64_t seed = 1) {
  std::mt19937_64 random(seed + static_cast<uint64_t>(index) * 1000003 + static_cast<uint64_t>(rank) * 7919);
  const double magnitude = static_cast<double>(static_cast<int64_t>(random() % 40) - 20);
  return (static_cast<double>(random() % 2000001) - 1e6) * std::exp2(magnitude);
}

}  // namespace troika::testing

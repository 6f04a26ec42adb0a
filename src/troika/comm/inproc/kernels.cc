#include "troika/comm/inproc/kernels.h"

#include <algorithm>
#include <cstring>

#include "troika/base/error.h"
#include "troika/comm/bfloat16.h"

namespace troika::inproc {
namespace {

// Elements that are summed at a time into a buffer that stays in the first-level cache.
constexpr int64_t kBlock = 512;

// How a type is stored and what it is added in. Integers are added unsigned: wrapping is defined there.
struct Float32 {
  using Stored = float;
  using Sum = float;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
  static float mean(double sum, double, double inverse) { return static_cast<float>(sum * inverse); }
};
struct Float64 {
  using Stored = double;
  using Sum = double;
  static double load(double value) { return value; }
  static double store(double value) { return value; }
  static double mean(double sum, double total, double) { return sum / total; }
};
struct BFloat16 {
  using Stored = uint16_t;
  using Sum = float;
  static float load(uint16_t value) { return bfloat16_to_float(value); }
  static uint16_t store(float value) { return float_to_bfloat16(value); }
  static float mean(double sum, double, double inverse) { return static_cast<float>(sum * inverse); }
};
struct Int64 {
  using Stored = uint64_t;
  using Sum = uint64_t;
  static uint64_t load(uint64_t value) { return value; }
  static uint64_t store(uint64_t value) { return value; }
};

struct SumJob {
  std::span<const void* const> sources;
  std::span<void* const> results;
  int64_t count;
};
struct MeanJob {
  std::span<const void* const> sources;
  std::span<const double> weights;
  std::span<void* const> results;
  int64_t count;
  double total;
};

template <typename Type>
const typename Type::Stored* at(const void* data, int64_t index) {
  return static_cast<const typename Type::Stored*>(data) + index;
}

// Copies a block of sums to every result.
template <typename Type>
[[gnu::always_inline]] inline void store_block(const typename Type::Sum* sums, std::span<void* const> results,
                                               int64_t begin, int64_t size) {
  for (void* result : results) {
    auto* __restrict to = static_cast<typename Type::Stored*>(result) + begin;
    for (int64_t i = 0; i < size; ++i) to[i] = Type::store(sums[i]);
  }
}

// A few ranks in one pass: every stream is read and written once, line by line; far quicker than blocks on
// what is bigger than the caches.
template <typename Type, int kRanks>
[[gnu::always_inline]] inline void sum_in_one_pass(const SumJob& job) {
  const typename Type::Stored* from[kRanks];
  typename Type::Stored* to[kRanks];
  for (size_t rank = 0; rank < kRanks; ++rank) {
    from[rank] = at<Type>(job.sources[rank], 0);
    to[rank] = static_cast<typename Type::Stored*>(job.results[std::min(rank, job.results.size() - 1)]);
  }
  // A result is a source at the same place or apart from all of them, so no iteration needs another one.
#pragma GCC ivdep
  for (int64_t i = 0; i < job.count; ++i) {
    typename Type::Sum sum = Type::load(from[0][i]);
    for (int rank = 1; rank < kRanks; ++rank) sum += Type::load(from[rank][i]);
    const auto stored = Type::store(sum);
    for (int rank = 0; rank < kRanks; ++rank) to[rank][i] = stored;
  }
}

template <typename Type>
[[gnu::always_inline]] inline void sum_blocks(const SumJob& job) {
  if (job.results.size() <= job.sources.size()) {
    if (job.sources.size() == 2) return sum_in_one_pass<Type, 2>(job);
    if (job.sources.size() == 3) return sum_in_one_pass<Type, 3>(job);
    if (job.sources.size() == 4) return sum_in_one_pass<Type, 4>(job);
  }
  alignas(64) typename Type::Sum sums[kBlock];
  for (int64_t begin = 0; begin < job.count; begin += kBlock) {
    const int64_t size = std::min(kBlock, job.count - begin);
    const auto* __restrict first = at<Type>(job.sources[0], begin);
    for (int64_t i = 0; i < size; ++i) sums[i] = Type::load(first[i]);
    for (size_t rank = 1; rank < job.sources.size(); ++rank) {
      const auto* __restrict next = at<Type>(job.sources[rank], begin);
      for (int64_t i = 0; i < size; ++i) sums[i] += Type::load(next[i]);
    }
    store_block<Type>(sums, job.results, begin, size);
  }
}

template <typename Type>
[[gnu::always_inline]] inline void mean_blocks(const MeanJob& job) {
  const double inverse = 1 / job.total;  // exact enough for float32, and far quicker than dividing
  alignas(64) double sums[kBlock];
  alignas(64) typename Type::Sum means[kBlock];
  for (int64_t begin = 0; begin < job.count; begin += kBlock) {
    const int64_t size = std::min(kBlock, job.count - begin);
    for (int64_t i = 0; i < size; ++i) sums[i] = 0;
    for (size_t rank = 0; rank < job.sources.size(); ++rank) {
      const double weight = job.weights[rank];
      if (weight == 0) continue;  // its elements may be anything, even NaN
      const auto* __restrict next = at<Type>(job.sources[rank], begin);
      for (int64_t i = 0; i < size; ++i) sums[i] += weight * static_cast<double>(Type::load(next[i]));
    }
    for (int64_t i = 0; i < size; ++i) means[i] = Type::mean(sums[i], job.total, inverse);
    store_block<Type>(means, job.results, begin, size);
  }
}

// One copy of each loop per instruction set, chosen by hand: the loader's way (target_clones) calls its
// resolver before the thread sanitizer is ready.
#if defined(__x86_64__)
#define TROIKA_TARGET(name) __attribute__((target(name)))
#else
#define TROIKA_TARGET(name)
#endif

template <typename Type>
void sum_baseline(const SumJob& job) {
  sum_blocks<Type>(job);
}
template <typename Type>
TROIKA_TARGET("avx2")
void sum_avx2(const SumJob& job) {
  sum_blocks<Type>(job);
}
template <typename Type>
TROIKA_TARGET("avx512f")
void sum_avx512(const SumJob& job) {
  sum_blocks<Type>(job);
}
template <typename Type>
void mean_baseline(const MeanJob& job) {
  mean_blocks<Type>(job);
}
template <typename Type>
TROIKA_TARGET("avx2")
void mean_avx2(const MeanJob& job) {
  mean_blocks<Type>(job);
}
template <typename Type>
TROIKA_TARGET("avx512f")
void mean_avx512(const MeanJob& job) {
  mean_blocks<Type>(job);
}

template <typename Type>
void sum_of(const SumJob& job, Instructions instructions) {
  switch (instructions) {
    case Instructions::baseline:
      return sum_baseline<Type>(job);
    case Instructions::avx2:
      return sum_avx2<Type>(job);
    case Instructions::avx512:
      return sum_avx512<Type>(job);
  }
}

template <typename Type>
void mean_of(const MeanJob& job, Instructions instructions) {
  switch (instructions) {
    case Instructions::baseline:
      return mean_baseline<Type>(job);
    case Instructions::avx2:
      return mean_avx2<Type>(job);
    case Instructions::avx512:
      return mean_avx512<Type>(job);
  }
}

void copy_to_all(const void* source, std::span<void* const> results, int64_t bytes) {
  for (void* result : results) {
    if (result != source) std::memcpy(result, source, static_cast<size_t>(bytes));
  }
}

Instructions detect() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Instructions::avx512;
  if (__builtin_cpu_supports("avx2")) return Instructions::avx2;
#endif
  return Instructions::baseline;
}

}  // namespace

Instructions best_instructions() {
  static const Instructions best = detect();
  return best;
}

void sum(ElementType type, std::span<const void* const> sources, std::span<void* const> results,
         int64_t count, Instructions instructions) {
  if (count == 0) return;
  if (sources.size() == 1) return copy_to_all(sources[0], results, count * size_of(type));
  const SumJob job{sources, results, count};
  switch (type) {
    case ElementType::float32:
      return sum_of<Float32>(job, instructions);
    case ElementType::float64:
      return sum_of<Float64>(job, instructions);
    case ElementType::bfloat16:
      return sum_of<BFloat16>(job, instructions);
    case ElementType::int64:
      return sum_of<Int64>(job, instructions);
  }
}

void weighted_mean(ElementType type, std::span<const void* const> sources, std::span<const double> weights,
                   std::span<void* const> results, int64_t count, Instructions instructions) {
  if (count == 0) return;
  double total = 0;
  int contributors = 0;
  size_t last = 0;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    if (weights[rank] == 0) continue;
    total += weights[rank];
    ++contributors;
    last = rank;
  }
  if (contributors == 1) return copy_to_all(sources[last], results, count * size_of(type));
  if (contributors == 0) {
    for (void* result : results) std::memset(result, 0, static_cast<size_t>(count * size_of(type)));
    return;
  }
  const MeanJob job{sources, weights, results, count, total};
  switch (type) {
    case ElementType::float32:
      return mean_of<Float32>(job, instructions);
    case ElementType::float64:
      return mean_of<Float64>(job, instructions);
    case ElementType::bfloat16:
      return mean_of<BFloat16>(job, instructions);
    case ElementType::int64:
      TROIKA_ASSERT(type != ElementType::int64, "a mean of integers");
  }
}

}  // namespace troika::inproc

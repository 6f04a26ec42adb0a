#include "troika/parallel/noise_mask.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "troika/base/error.h"

namespace troika {
namespace {

#define TROIKA_INLINE [[gnu::always_inline]] inline

// Philox blocks that are computed side by side: enough for several vectors, few enough for the first cache.
constexpr size_t kBlocks = 128;
constexpr size_t kVector = 16;
static_assert(kBlocks % kVector == 0);

// A stretch of one sample's elements, and where its first number is.
struct Run {
  int64_t mask = 0;
  size_t number = 0;
  size_t count = 0;
};

struct Work {
  std::array<uint64_t, kBlocks> sample{}, block{};
  std::array<uint32_t, 4 * kBlocks> numbers;
  std::array<Run, kBlocks> runs;
  size_t blocks = 0, num_runs = 0;
};

// philox() of base/random.h, one block per vector element.
TROIKA_INLINE void draw_numbers(uint64_t key, Work& work) {
  for (size_t at = 0; at < work.blocks; at += kVector) {
    uint32_t x0[kVector], x1[kVector], x2[kVector], x3[kVector];
    for (size_t i = 0; i < kVector; ++i) {
      x0[i] = static_cast<uint32_t>(work.block[at + i]);
      x1[i] = static_cast<uint32_t>(work.block[at + i] >> 32);
      x2[i] = static_cast<uint32_t>(work.sample[at + i]);
      x3[i] = static_cast<uint32_t>(work.sample[at + i] >> 32);
    }
    auto k0 = static_cast<uint32_t>(key);
    auto k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (size_t i = 0; i < kVector; ++i) {
        const uint64_t p0 = uint64_t{0xD2511F53} * x0[i];
        const uint64_t p1 = uint64_t{0xCD9E8D57} * x2[i];
        x0[i] = static_cast<uint32_t>(p1 >> 32) ^ x1[i] ^ k0;
        x1[i] = static_cast<uint32_t>(p1);
        x2[i] = static_cast<uint32_t>(p0 >> 32) ^ x3[i] ^ k1;
        x3[i] = static_cast<uint32_t>(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    uint32_t* out = work.numbers.data() + 4 * at;
    for (size_t i = 0; i < kVector; ++i) {
      out[4 * i] = x0[i];
      out[4 * i + 1] = x1[i];
      out[4 * i + 2] = x2[i];
      out[4 * i + 3] = x3[i];
    }
  }
}

template <typename T>
TROIKA_INLINE void decide(uint64_t key, uint32_t dropped_below, T keep, T* mask, Work& work) {
  draw_numbers(key, work);
  for (size_t r = 0; r < work.num_runs; ++r) {
    const Run& run = work.runs[r];
    const uint32_t* __restrict numbers = work.numbers.data() + run.number;
    T* __restrict out = mask + run.mask;
    for (size_t i = 0; i < run.count; ++i) out[i] = numbers[i] < dropped_below ? T{0} : keep;
  }
  work.blocks = work.num_runs = 0;
}

// One body, compiled once per instruction set, as in fused_update.cc.
#define TROIKA_DECIDE(SUFFIX, TARGET)                                                              \
  template <typename T>                                                                            \
  TARGET void decide_##SUFFIX(uint64_t key, uint32_t dropped_below, T keep, T* mask, Work& work) { \
    decide<T>(key, dropped_below, keep, mask, work);                                               \
  }
#if defined(__x86_64__)
TROIKA_DECIDE(avx512, __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512"))))
TROIKA_DECIDE(avx2, __attribute__((target("avx2"))))
#endif
TROIKA_DECIDE(default, )

template <typename T>
using Decide = void (*)(uint64_t, uint32_t, T, T*, Work&);

template <typename T>
Decide<T> best_decide() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    return decide_avx512<T>;
  }
  if (__builtin_cpu_supports("avx2")) return decide_avx2<T>;
#endif
  return decide_default<T>;
}

}  // namespace

template <typename T>
void draw_mask(uint64_t key, int64_t first_sample, const NoiseLayout& layout, double p, T keep, T* mask) {
  TROIKA_ASSERT(p >= 0 && p <= 1, fmt::format("probability {}", p));
  const int64_t rows = layout.outer * layout.samples;
  const double below = std::round(p * 0x1p32);
  if (below >= 0x1p32) {
    std::fill_n(mask, rows * layout.inner, T{0});
    return;
  }
  const Decide<T> decide = best_decide<T>();
  Work work;
  const auto finish = [&] { decide(key, static_cast<uint32_t>(below), keep, mask, work); };
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t sample =
        layout.shared ? ~uint64_t{0} : static_cast<uint64_t>(first_sample + row % layout.samples);
    const int64_t start = row / layout.samples * layout.inner;
    for (int64_t done = 0; done < layout.inner;) {
      const auto element = static_cast<uint64_t>(layout.place(start + done));
      const size_t skip = element % 4;
      const size_t room = 4 * (kBlocks - work.blocks) - skip;
      const int64_t left = std::min(layout.inner - done, layout.follow(start + done));
      const size_t count = std::min(static_cast<size_t>(left), room);
      work.runs[work.num_runs++] = {row * layout.inner + done, 4 * work.blocks + skip, count};
      for (size_t i = 0; 4 * i < skip + count; ++i, ++work.blocks) {
        work.sample[work.blocks] = sample;
        work.block[work.blocks] = element / 4 + i;
      }
      done += static_cast<int64_t>(count);
      if (work.blocks == kBlocks) finish();
    }
  }
  finish();
}

template void draw_mask<float>(uint64_t, int64_t, const NoiseLayout&, double, float, float*);
template void draw_mask<double>(uint64_t, int64_t, const NoiseLayout&, double, double, double*);
template void draw_mask<uint16_t>(uint64_t, int64_t, const NoiseLayout&, double, uint16_t, uint16_t*);

}  // namespace troika

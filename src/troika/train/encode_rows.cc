#include "troika/train/encode_rows.h"

#include <limits>
#include <numbers>

namespace troika::internal {
namespace {

struct Rows {
  int64_t rows;
  int64_t count;
  const double* __restrict mean;
  const double* __restrict scale;
  const float* __restrict in;
  int64_t in_stride;
  float* __restrict out;
  int64_t out_stride;
};

[[gnu::always_inline]] inline void standardise(const Rows& at) {
  const double* __restrict mean = at.mean;
  const double* __restrict scale = at.scale;
  const int64_t count = at.count;
  for (int64_t row = 0; row < at.rows; ++row) {
    const float* __restrict in = at.in + row * at.in_stride;
    float* __restrict out = at.out + row * at.out_stride;
    for (int64_t j = 0; j < count; ++j) {
      const auto value = static_cast<float>((static_cast<double>(in[j]) - mean[j]) * scale[j]);
      out[j] = in[j] == in[j] ? value : 0.0F;
    }
  }
}

[[gnu::always_inline]] inline void mask(const Rows& at) {
  const int64_t count = at.count;
  for (int64_t row = 0; row < at.rows; ++row) {
    const float* __restrict in = at.in + row * at.in_stride;
    float* __restrict out = at.out + row * at.out_stride;
    for (int64_t j = 0; j < count; ++j) out[j] = in[j] == in[j] ? 0.0F : 1.0F;
  }
}

// One body, compiled once per instruction set; no fused multiply-add, so all give the same bits.
enum class Work { standardise, mask };

[[gnu::always_inline]] inline void work_on(Work work, const Rows& at) {
  return work == Work::mask ? mask(at) : standardise(at);
}

void with_any(Work work, const Rows& at) { work_on(work, at); }
#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"))) void with_avx512(Work work, const Rows& at) {
  work_on(work, at);
}
__attribute__((target("avx2"))) void with_avx2(Work work, const Rows& at) { work_on(work, at); }
#endif

void with_best(Work work, const Rows& at) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    return with_avx512(work, at);
  }
  if (__builtin_cpu_supports("avx2")) return with_avx2(work, at);
#endif
  with_any(work, at);
}

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kDay = 86'400 * kSecond;
constexpr int64_t kYear = 31'556'952 * kSecond;  // 365.2425 days

/// How far `time` is in its period, from 0 to below 1.
double turn_of(int64_t time, int64_t period) {
  const int64_t rest = time % period;
  return static_cast<double>(rest < 0 ? rest + period : rest) / static_cast<double>(period);
}

struct SinCos {
  double sin, cos;
};

SinCos sin_cos(double turn) {
  // The nearest quarter is taken off, so that the series are summed for angles up to pi/4 only.
  const int quarter = static_cast<int>(4 * turn + 0.5);
  const double x = 2 * std::numbers::pi * (turn - 0.25 * quarter);
  const double y = x * x;
  const double s =
      x * (1 + y * (-1.0 / 6 +
                    y * (1.0 / 120 + y * (-1.0 / 5040 + y * (1.0 / 362880 + y * (-1.0 / 39916800 +
                                                                                 y * (1.0 / 6227020800)))))));
  const double c =
      1 +
      y * (-1.0 / 2 +
           y * (1.0 / 24 + y * (-1.0 / 720 +
                                y * (1.0 / 40320 + y * (-1.0 / 3628800 +
                                                        y * (1.0 / 479001600 + y * (-1.0 / 87178291200)))))));
  const bool swapped = (quarter & 1) != 0, turned = (quarter & 2) != 0;
  const double sin = swapped ? c : s, cos = swapped ? -s : c;
  return turned ? SinCos{-sin, -cos} : SinCos{sin, cos};
}

void put(float* row, int to, double value) {
  if (to >= 0) row[to] = static_cast<float>(value);
}

}  // namespace

void standardise_rows(const ColumnRun& run, const double* mean, const double* scale, int64_t rows,
                      const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  with_best(Work::standardise, {rows, run.count, mean + run.to, scale + run.to, in + run.from, in_stride,
                                out + run.to, out_stride});
}

void mask_rows(const ColumnRun& run, int64_t rows, const float* in, int64_t in_stride, float* out,
               int64_t out_stride) {
  with_best(Work::mask,
            {rows, run.count, nullptr, nullptr, in + run.from, in_stride, out + run.to, out_stride});
}

void clock_rows(const ClockInputs& clock, int64_t rows, const int64_t* in, int64_t in_stride, float* out,
                int64_t out_stride) {
  const bool day = clock.sin_day >= 0 || clock.cos_day >= 0;
  const bool year = clock.sin_year >= 0 || clock.cos_year >= 0;
  for (int64_t row = 0; row < rows; ++row, out += out_stride) {
    const int64_t time = in[row * in_stride + clock.from];
    const bool null = time == std::numeric_limits<int64_t>::min();
    if (day) {
      const SinCos at = null ? SinCos{0, 0} : sin_cos(turn_of(time, kDay));
      put(out, clock.sin_day, at.sin);
      put(out, clock.cos_day, at.cos);
    }
    if (year) {
      const SinCos at = null ? SinCos{0, 0} : sin_cos(turn_of(time, kYear));
      put(out, clock.sin_year, at.sin);
      put(out, clock.cos_year, at.cos);
    }
  }
}

}  // namespace troika::internal

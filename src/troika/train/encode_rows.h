// The inner loops of encoding: rows of a dataset to rows of a model's inputs. Internal to the encoder; no
// torch. Threading: pure functions.
#pragma once

#include <cstdint>

namespace troika::internal {

/// Input columns that lie side by side both in the dataset's rows and in the encoded ones.
struct ColumnRun {
  int from = 0;
  int to = 0;
  int count = 0;
};

/// out[r][to + j] = float((double(in[r][from + j]) - mean[to + j]) * scale[to + j]), and 0 for a NaN, of
/// `rows` rows that are in_stride and out_stride numbers apart.
void standardise_rows(const ColumnRun& run, const double* mean, const double* scale, int64_t rows,
                      const float* in, int64_t in_stride, float* out, int64_t out_stride);

/// out[r][to + j] = 1 where in[r][from + j] is a NaN, else 0.
void mask_rows(const ColumnRun& run, int64_t rows, const float* in, int64_t in_stride, float* out,
               int64_t out_stride);

/// Where a timestamp's sines and cosines go in an encoded row; -1: nowhere.
struct ClockInputs {
  int from = 0;
  int sin_day = -1, cos_day = -1, sin_year = -1, cos_year = -1;
};

/// in[r][from] is in nanoseconds since 1970 UTC; INT64_MIN gives 0. A year has 365.2425 days. Sines and
/// cosines are sums of their power series, within 1e-12: the same bits on every machine.
void clock_rows(const ClockInputs& clock, int64_t rows, const int64_t* in, int64_t in_stride, float* out,
                int64_t out_stride);

}  // namespace troika::internal

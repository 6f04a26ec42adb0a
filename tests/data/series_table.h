// Small datasets of series for tests, row by row, and windows of them by the plainest rule there is.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "support/make_dataset.h"
#include "troika/data/windows.h"

namespace troika {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

struct SeriesRow {
  int series = 0;  // code of the category column "id"
  int64_t time = 0;
  bool has_target = true;
};

/// Columns: "y" (a number, the row's number), "id" (a category: "a", "b", ...), "t" (seconds since 1970 as a
/// timestamp, or just the number).
inline Dataset make_series(const Path& folder, const std::vector<SeriesRow>& rows, bool timestamps = true,
                           int64_t rows_per_shard = std::numeric_limits<int64_t>::max()) {
  const auto row_at = [&](int64_t row) { return rows[static_cast<size_t>(row)]; };
  Dataset dataset = make_dataset(folder, {.rows = static_cast<int64_t>(rows.size()),
                                          .float_columns = 2,
                                          .rows_per_shard = rows_per_shard,
                                          .float_at =
                                              [&](int64_t row, int column) {
                                                if (column == 1)
                                                  return static_cast<float>(row_at(row).series);
                                                return row_at(row).has_target
                                                           ? static_cast<float>(row)
                                                           : std::numeric_limits<float>::quiet_NaN();
                                              },
                                          .int_at =
                                              [&](int64_t row, int) {
                                                const int64_t time = row_at(row).time;
                                                return time == kNoTime || !timestamps ? time : time * kSecond;
                                              }});
  dataset.columns[0].name = "y";
  dataset.columns[1].name = "id";
  dataset.columns[1].type = ColumnType::category;
  for (int code = 0; code < 100; ++code) {
    dataset.columns[1].categories.push_back(code < 26 ? std::string(1, static_cast<char>('a' + code))
                                                      : "s" + std::to_string(code));
  }
  dataset.columns[2].name = "t";
  dataset.columns[2].type = timestamps ? ColumnType::timestamp : ColumnType::integer;
  return dataset;
}

/// Rows of one series, one a unit of time.
inline void add_series(std::vector<SeriesRow>& rows, int series, int64_t count, int64_t from = 0,
                       int64_t step = 1) {
  for (int64_t k = 0; k < count; ++k) rows.push_back({series, from + k * step, true});
}

/// The first rows of all windows, looking at each row of each one. A stride begins anew after every break.
inline std::vector<int64_t> naive_windows(const std::vector<SeriesRow>& rows, int64_t window, int64_t horizon,
                                          int64_t stride, double max_gap) {
  const auto n = static_cast<int64_t>(rows.size());
  const auto follows = [&](int64_t row) {
    const SeriesRow& now = rows[static_cast<size_t>(row)];
    const SeriesRow& before = rows[static_cast<size_t>(row - 1)];
    return now.series == before.series && now.time > before.time &&
           static_cast<double>(now.time - before.time) <= max_gap;
  };
  std::vector<int64_t> starts;
  int64_t next = 0;
  for (int64_t row = 0; row + window + horizon <= n; ++row) {
    if (row > 0 && !follows(row)) next = row;
    if (row != next) continue;
    next += stride;
    bool whole = true;
    for (int64_t k = 1; k < window + horizon; ++k) whole &= follows(row + k);
    bool has_targets = true;
    for (int64_t k = horizon == 0 ? window - 1 : window; k < window + horizon; ++k)
      has_targets &= rows[static_cast<size_t>(row + k)].has_target;
    if (whole && has_targets) starts.push_back(row);
  }
  return starts;
}

inline std::vector<int64_t> members_of(const RowSet& set) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < set.universe(); ++row) {
    if (set.contains(row)) rows.push_back(row);
  }
  return rows;
}

inline WindowOptions windows_of(int64_t window, int64_t horizon, int64_t stride = 1, double max_gap = 0) {
  return {.window = window,
          .horizon = horizon,
          .stride = stride,
          .series = {"id"},
          .time = "t",
          .max_gap = max_gap};
}

}  // namespace troika

// Single values of rows, as splits, windows and baselines look at them. Pure functions; thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troika/data/csv_value.h"
#include "troika/data/source.h"
#include "troika/data/split_time.h"

namespace troika {

inline float float_at(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column) {
  return rows.floats[static_cast<size_t>(row * dataset.float_columns + column.index)];
}
inline int64_t int_at(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column) {
  return rows.ints[static_cast<size_t>(row * dataset.int_columns + column.index)];
}

inline bool is_null_at(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column) {
  if (column.storage == Storage::floats) return std::isnan(float_at(dataset, rows, row, column));
  return int_at(dataset, rows, row, column) == kNullInt;
}

/// The value of an integer or timestamp column that isn't null; a whole number in float32 is exact.
inline int64_t whole_at(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column) {
  if (column.storage == Storage::ints) return int_at(dataset, rows, row, column);
  return static_cast<int64_t>(float_at(dataset, rows, row, column));
}

/// Any column's value as a number, a category's as its code; NaN for null.
inline double number_at(const Dataset& dataset, const RowBuffer& rows, int64_t row, Storage storage,
                        int index) {
  if (storage == Storage::floats)
    return rows.floats[static_cast<size_t>(row * dataset.float_columns + index)];
  const int64_t value = rows.ints[static_cast<size_t>(row * dataset.int_columns + index)];
  return value == kNullInt ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(value);
}

/// Calls `visit(row number, rows, index in rows)` for each row of `selected`.
template <typename Visit>
void for_each_row(const Dataset& dataset, const RowSet& selected, const Visit& visit) {
  int64_t next = 0;
  scan_rows(dataset, selected, [&](const RowBuffer& rows) {
    for (int64_t i = 0; i < rows.rows; ++i, ++next) {
      while (!selected.contains(next)) ++next;
      visit(next, rows, i);
    }
  });
}

/// The columns whose values a sample must have.
class TargetColumns {
 public:
  TargetColumns(const Dataset& dataset, const std::vector<std::string>& names);
  bool has_all(const RowBuffer& rows, int64_t row) const;

 private:
  const Dataset& dataset_;
  std::vector<const Column*> columns_;
};

/// Throws UsageError unless the shares are from 0 to below 1 and leave something to train on.
void check_shares(const SplitOptions& options);

/// Names of the parts, by number, and the share of each.
constexpr const char* kPartNames[] = {"train", "validation", "test"};
inline double share_of(const SplitOptions& options, size_t part) {
  return part == 0 ? 1 - options.validation - options.test : part == 1 ? options.validation : options.test;
}

/// The part that a row, or a window's first row, belongs to at random: a pure function of (seed, row).
size_t random_part(const SplitOptions& options, int64_t row);

/// The key that splits draw from, so that no other use of the seed draws the same numbers.
uint64_t split_key(uint64_t seed);

/// The column of that name if its values can be in order of time, else a UsageError that lists those that
/// can; `purpose` is "a split by time".
const Column& time_column(const Dataset& dataset, const std::string& name, const std::string& purpose);

/// "2013-10-19T13:00:00Z", or the number in a column of numbers.
std::string time_text(const Column& column, int64_t time);

/// Rows on each day that has some: its first nanosecond, and how many.
using RowsOfDay = std::map<int64_t, int64_t>;

struct ChosenCuts {
  TimeCuts cuts;
  bool whole_days = false;
};

/// Cuts between the times of the `usable` rows, which all have one; `rows_of_day` are theirs and empty if
/// times are numbers. Whole days if there are enough of them. Throws Error if there is no such cut.
ChosenCuts choose_cuts(const Dataset& dataset, const Column& column, const RowSet& usable,
                       const RowsOfDay& rows_of_day, const SplitOptions& options);

}  // namespace troika

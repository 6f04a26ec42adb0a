// Series, as the values of some columns tell them apart, and which part of a split each one is dealt to.
// Threading: values and pure functions; thread-safe as such.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troika/data/source.h"

namespace troika {

/// The columns that tell series apart: of any type; values are compared exactly, and null is a value.
class SeriesColumns {
 public:
  /// Throws UsageError for a column that isn't there or is named twice.
  SeriesColumns(const Dataset& dataset, const std::vector<std::string>& names);

  /// The row's values as bytes, equal if and only if the values are.
  void read(const RowBuffer& rows, int64_t row, std::string& key) const;

  /// The part of a key that these columns make, of a key by columns `all`, which hold all of these.
  std::string part_of(std::string_view key, const SeriesColumns& all) const;

  /// From the values' texts, so that it doesn't depend on codes, row order or how a column is stored.
  uint64_t hash(std::string_view key, uint64_t seed) const;

  /// `origin = "JFK", gate = 3` for people; only the values, "JFK, 3", if `names` is false.
  std::string text(std::string_view key, bool names = true) const;

  bool empty() const { return columns_.empty(); }
  /// "origin, gate"
  std::string names() const;

 private:
  std::string value_text(size_t column, std::string_view key, bool& null) const;

  const Dataset& dataset_;
  std::vector<const Column*> columns_;
};

/// A series and how many samples it has.
struct SeriesSize {
  uint64_t hash = 0;
  int64_t items = 0;
};

/// The part of each series: 0 train, 1 validation, 2 test; -1 without items. Test, then validation take every
/// series, in order of the hash, that doesn't exceed their share of the items, and then the one that comes
/// nearest to it if it comes nearer. Empty if there are fewer series with items than parts.
std::vector<int> deal_series(const std::vector<SeriesSize>& series, const SplitOptions& options);

/// deal_series, with an Error that says how many series there are if they are too few; `items` is "rows with
/// a target".
std::vector<int> deal_series_or_fail(const std::vector<SeriesSize>& series, const SplitOptions& options,
                                     const SeriesColumns& columns, const std::string& items);

/// "train 3 series (EWR, JFK, LGA; 1,234 rows), ...", with the names of at most three.
std::string describe_series(const std::vector<int>& part_of_series, const std::vector<SeriesSize>& series,
                            const std::vector<std::string>& keys, const SeriesColumns& columns,
                            const std::string& items);

}  // namespace troika

#include "troika/data/split_series.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"
#include "troika/data/csv_value.h"
#include "troika/data/split_values.h"

namespace troika {
namespace {

constexpr uint64_t kNullMark = 0x6E756C6C;
constexpr size_t kNamedSeries = 3;
constexpr size_t kValueLength = 40;

int64_t key_value(std::string_view key, size_t column) {
  int64_t value;
  std::memcpy(&value, key.data() + column * sizeof value, sizeof value);
  return value;
}

// A value as 64 bits. Null is INT64_MIN, which no other value is: floats take 32 bits, -0 is 0.
int64_t series_value(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column) {
  if (column.storage == Storage::ints) return int_at(dataset, rows, row, column);
  const float value = float_at(dataset, rows, row, column);
  if (std::isnan(value)) return kNullInt;
  if (column.type != ColumnType::number) return static_cast<int64_t>(value);
  const float plain = value == 0 ? 0.0f : value;
  uint32_t bits;
  std::memcpy(&bits, &plain, sizeof bits);
  return bits;
}

}  // namespace

SeriesColumns::SeriesColumns(const Dataset& dataset, const std::vector<std::string>& names)
    : dataset_(dataset) {
  for (const std::string& name : names) {
    const Column* const column = &dataset.column(name);
    if (std::find(columns_.begin(), columns_.end(), column) != columns_.end()) {
      fail_usage("series: the column \"{}\" is named twice; name each once", name);
    }
    columns_.push_back(column);
  }
}

void SeriesColumns::read(const RowBuffer& rows, int64_t row, std::string& key) const {
  key.resize(columns_.size() * sizeof(int64_t));
  for (size_t c = 0; c < columns_.size(); ++c) {
    const int64_t value = series_value(dataset_, rows, row, *columns_[c]);
    std::memcpy(key.data() + c * sizeof value, &value, sizeof value);
  }
}

std::string SeriesColumns::part_of(std::string_view key, const SeriesColumns& all) const {
  std::string part;
  for (const Column* column : columns_) {
    const auto at = std::find(all.columns_.begin(), all.columns_.end(), column);
    TROIKA_ASSERT(at != all.columns_.end(), fmt::format("\"{}\" tells no series apart", column->name));
    part.append(
        key.substr(static_cast<size_t>(at - all.columns_.begin()) * sizeof(int64_t), sizeof(int64_t)));
  }
  return part;
}

std::string SeriesColumns::value_text(size_t column, std::string_view key, bool& null) const {
  const int64_t value = key_value(key, column);
  null = value == kNullInt;
  if (null) return "null";
  switch (columns_[column]->type) {
    case ColumnType::number: {
      const auto bits = static_cast<uint32_t>(value);
      float number;
      std::memcpy(&number, &bits, sizeof number);
      return fmt::format("{}", number);
    }
    case ColumnType::integer:
      return fmt::to_string(value);
    case ColumnType::boolean:
      return value != 0 ? "true" : "false";
    case ColumnType::category:
      return columns_[column]->categories.at(static_cast<size_t>(value));
    case ColumnType::timestamp:
      return timestamp_text(value);
  }
  return "";
}

uint64_t SeriesColumns::hash(std::string_view key, uint64_t seed) const {
  uint64_t hash = mix_keys(split_key(seed), columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c) {
    bool null = false;
    const std::string text = value_text(c, key, null);
    hash = mix_keys(hash, null ? kNullMark : hash64(text));
  }
  return hash;
}

std::string SeriesColumns::text(std::string_view key, bool names) const {
  std::string all;
  for (size_t c = 0; c < columns_.size(); ++c) {
    bool null = false;
    const std::string value = printable(value_text(c, key, null), kValueLength);
    const bool quoted = names && !null && columns_[c]->type == ColumnType::category;
    if (c > 0) all += ", ";
    if (names) all += columns_[c]->name + " = ";
    all += quoted ? "\"" + value + "\"" : value;
  }
  return all;
}

std::string SeriesColumns::names() const {
  std::vector<std::string> names;
  for (const Column* column : columns_) names.push_back(column->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<int> deal_series(const std::vector<SeriesSize>& series, const SplitOptions& options) {
  std::vector<size_t> left;  // series without a part yet, in order of the hash
  int64_t items = 0;
  for (size_t k = 0; k < series.size(); ++k) {
    items += series[k].items;
    if (series[k].items > 0) left.push_back(k);
  }
  std::sort(left.begin(), left.end(), [&](size_t a, size_t b) {
    return std::tuple(series[a].hash, series[a].items, a) < std::tuple(series[b].hash, series[b].items, b);
  });
  size_t parts_after = 1;  // train, and what else comes after the part at hand
  for (const size_t part : {1, 2}) parts_after += share_of(options, part) > 0 ? 1 : 0;
  if (left.size() < parts_after) return {};

  std::vector<int> part_of(series.size(), -1);
  for (const size_t part : {2, 1}) {
    const double share = share_of(options, part);
    if (share <= 0) continue;
    --parts_after;
    const double wanted = share * static_cast<double>(items);
    const auto off = [&](int64_t count) { return std::abs(static_cast<double>(count) - wanted); };
    int64_t count = 0;
    size_t may_take = left.size() - parts_after;
    const auto take = [&](size_t k) {
      part_of[k] = static_cast<int>(part);
      count += series[k].items;
      --may_take;
    };
    const auto forget_taken = [&] { std::erase_if(left, [&](size_t k) { return part_of[k] >= 0; }); };
    for (const size_t k : left) {
      if (may_take > 0 && static_cast<double>(count + series[k].items) <= wanted) take(k);
    }
    forget_taken();
    // And the one that comes nearest, if it comes nearer; a part that was asked for gets one in any case.
    const size_t nearest = *std::min_element(left.begin(), left.end(), [&](size_t a, size_t b) {
      return off(count + series[a].items) < off(count + series[b].items);
    });
    if (count == 0 || (may_take > 0 && off(count + series[nearest].items) < off(count))) take(nearest);
    forget_taken();
  }
  for (const size_t k : left) part_of[k] = 0;
  return part_of;
}

std::vector<int> deal_series_or_fail(const std::vector<SeriesSize>& series, const SplitOptions& options,
                                     const SeriesColumns& columns, const std::string& items) {
  std::vector<int> part_of = deal_series(series, options);
  if (!part_of.empty()) return part_of;
  const auto with_items =
      std::count_if(series.begin(), series.end(), [](const SeriesSize& one) { return one.items > 0; });
  const int parts = 1 + (options.validation > 0 ? 1 : 0) + (options.test > 0 ? 1 : 0);
  fail(
      "split by series: {} parts need at least {} series with {}, but {} tells apart {}{}; use fewer parts "
      "(validation = 0 or test = 0), other series columns, or split by = \"time\"",
      parts, parts, items, columns.names(), with_commas(with_items),
      static_cast<size_t>(with_items) == series.size()
          ? ""
          : fmt::format(" of {} series that have some", with_commas(static_cast<int64_t>(series.size()))));
}

std::string describe_series(const std::vector<int>& part_of_series, const std::vector<SeriesSize>& series,
                            const std::vector<std::string>& keys, const SeriesColumns& columns,
                            const std::string& items) {
  std::vector<std::string> parts;
  for (const int part : {0, 1, 2}) {
    int64_t members = 0, count = 0;
    std::vector<std::string> names;
    for (size_t k = 0; k < series.size(); ++k) {
      if (part_of_series[k] != part) continue;
      ++members;
      count += series[k].items;
      if (names.size() < kNamedSeries) names.push_back(columns.text(keys[k], false));
    }
    if (members == 0) continue;
    parts.push_back(fmt::format(
        "{} {} series ({}{}; {} {})", kPartNames[part], with_commas(members), fmt::join(names, " | "),
        members > static_cast<int64_t>(kNamedSeries) ? " | ..." : "", with_commas(count), items));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace troika

#include "troika/data/cell_text.h"

#include <cmath>

#include "troika/base/error.h"
#include "troika/data/csv_value.h"
#include "troika/data/split_values.h"

namespace troika {

std::string cell_text(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column) {
  if (is_null_at(dataset, rows, row, column)) return "";
  if (column.storage == Storage::ints) {
    const int64_t value = int_at(dataset, rows, row, column);
    return column.type == ColumnType::timestamp ? timestamp_text(value) : std::to_string(value);
  }
  const float number = float_at(dataset, rows, row, column);
  switch (column.type) {
    case ColumnType::boolean:
      return number != 0 ? "true" : "false";
    case ColumnType::category:
      if (number < 0 || number >= static_cast<float>(column.categories.size())) {
        fail(
            "column \"{}\" of {} holds the category code {}, but there are {} categories; run troika data "
            "check",
            column.name, dataset.folder.string(), number, column.categories.size());
      }
      return column.categories[static_cast<size_t>(number)];
    case ColumnType::integer:
      return std::to_string(static_cast<int64_t>(number));
    case ColumnType::number:
    case ColumnType::timestamp:
      break;
  }
  return fmt::format("{}", number);
}

std::string csv_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    out += c;
    if (c == '"') out += '"';
  }
  return out + '"';
}

std::string csv_cell(std::string_view text) {
  const bool blank_ends = !text.empty() && (text.front() == ' ' || text.back() == ' ');
  if (!blank_ends && text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  return csv_quoted(text);
}

}  // namespace troika

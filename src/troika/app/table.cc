#include "troika/app/table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "troika/base/text.h"
#include "troika/data/csv_value.h"

namespace troika {
namespace {

// Characters, roughly as wide as on a terminal: continuation bytes of UTF-8 take no place.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string time_text(double nanoseconds) { return timestamp_text(static_cast<int64_t>(nanoseconds)); }

}  // namespace

Table::Table(std::vector<std::string> header, std::vector<bool> right) : right_(std::move(right)) {
  rows_.push_back(std::move(header));
}

void Table::add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

std::string Table::text() const {
  std::vector<size_t> widths(right_.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width_of(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (right_[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::vector<std::string> column_summary(const Column& column) {
  std::vector<std::string> row{
      printable(column.name, 40), std::string(name_of(column.type)), with_commas(column.nulls), "", "", ""};
  switch (column.type) {
    case ColumnType::number:
    case ColumnType::integer:
    case ColumnType::boolean:
      row[3] = fmt::format("{:.6g}", column.minimum);
      row[4] = fmt::format("{:.6g}", column.maximum);
      row[5] = fmt::format("{:.4g}", column.mean);
      break;
    case ColumnType::category:
      row[4] = fmt::format("{} categories", with_commas(static_cast<int64_t>(column.categories.size())));
      break;
    case ColumnType::timestamp:
      row[3] = time_text(column.minimum);
      row[4] = time_text(column.maximum);
      break;
  }
  return row;
}

nlohmann::ordered_json column_json(const Column& column) {
  nlohmann::ordered_json json{{"name", column.name}, {"type", name_of(column.type)}, {"nulls", column.nulls}};
  switch (column.type) {
    case ColumnType::number:
    case ColumnType::integer:
    case ColumnType::boolean:
      json["min"] = column.minimum;
      json["max"] = column.maximum;
      json["mean"] = column.mean;
      json["deviation"] = column.deviation;
      break;
    case ColumnType::category:
      json["categories"] = column.categories.size();
      break;
    case ColumnType::timestamp:
      json["min"] = time_text(column.minimum);
      json["max"] = time_text(column.maximum);
      break;
  }
  return json;
}

}  // namespace troika

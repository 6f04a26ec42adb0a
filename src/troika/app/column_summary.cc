#include "troika/app/column_summary.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "troika/base/text.h"
#include "troika/data/csv_value.h"

namespace troika {
namespace {

std::string time_text(double nanoseconds) { return timestamp_text(static_cast<int64_t>(nanoseconds)); }

}  // namespace

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

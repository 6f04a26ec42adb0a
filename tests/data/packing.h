// Packs a text and reads the dataset back as text, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"
#include "troika/data/csv_value.h"
#include "troika/data/pack.h"
#include "troika/data/source.h"

namespace troika {

inline void write_file(const Path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string file_text(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline PackOptions pack_options(std::vector<Path> files, Path output) {
  PackOptions options;
  options.files = std::move(files);
  options.output = std::move(output);
  options.threads = 2;
  return options;
}

inline PackReport pack_with(const PackOptions& options) {
  return pack(options, sniff_csv(options.files.front()), [](const PackProgress&) {});
}

inline PackReport pack_text(const TemporaryFolder& folder, std::string_view text) {
  write_file(folder / "in.csv", text);
  return pack_with(pack_options({folder / "in.csv"}, folder / "out"));
}

inline std::string shown(const Column& column, float number, int64_t integer) {
  if (column.storage == Storage::ints) {
    if (integer == kNullInt) return "null";
    return column.type == ColumnType::timestamp ? timestamp_text(integer) : std::to_string(integer);
  }
  if (std::isnan(number)) return "null";
  return column.type == ColumnType::category ? column.categories.at(static_cast<size_t>(number))
                                             : fmt::format("{}", number);
}

/// All rows, cells joined with '|'.
inline std::vector<std::string> rows_of(const Dataset& dataset) {
  std::vector<std::string> rows;
  scan_rows(dataset, RowSet(dataset.rows, true), [&](const RowBuffer& buffer) {
    for (int64_t row = 0; row < buffer.rows; ++row) {
      std::string line;
      for (const Column& column : dataset.columns) {
        const bool floats = column.storage == Storage::floats;
        const auto at =
            static_cast<size_t>(row * (floats ? dataset.float_columns : dataset.int_columns) + column.index);
        line += (&column == dataset.columns.data() ? "" : "|") +
                shown(column, floats ? buffer.floats[at] : 0, floats ? 0 : buffer.ints[at]);
      }
      rows.push_back(std::move(line));
    }
  });
  return rows;
}

inline std::string types_of(const Dataset& dataset) {
  std::string types;
  for (const Column& column : dataset.columns) {
    types += (types.empty() ? "" : " ") + std::string(name_of(column.type)) +
             (column.type == ColumnType::integer && column.storage == Storage::ints ? "64" : "");
  }
  return types;
}

inline void expect_empty_but(const TemporaryFolder& folder, const std::vector<std::string>& names) {
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    left.push_back(entry.path().filename().string());
  }
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, names);
}

}  // namespace troika

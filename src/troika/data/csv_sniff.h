// Looks at samples from all over a CSV file and decides on dialect and types. The decision about types only
// saves time: the final types follow from all cells, so a sample that misleads costs a second pass and
// changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/data/csv_reader.h"
#include "troika/data/csv_value.h"

namespace troika {

struct SniffedColumn {
  std::string name;
  CellKinds kinds;      // seen in the sample
  std::string example;  // the first cell that isn't null
  int64_t nulls = 0;    // in the sample
};

struct Sniff {
  CsvDialect dialect;
  Packing packing = Packing::none;
  std::vector<SniffedColumn> columns;
  int64_t sample_rows = 0;
  int64_t sample_bytes = 0;
  std::vector<std::string> names() const;
};

/// Throws Error if the file is empty, is no text, has no header, or names a column twice.
Sniff sniff_csv(const Path& path);

}  // namespace troika

// CSV files to a dataset: sniff, one pass over the bytes on all cores, within a bounded memory. The result
// (every byte of it) depends on the files alone, not on the number of threads nor on what was sampled.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "troika/data/csv_sniff.h"
#include "troika/data/dataset.h"
#include "troika/data/reject_file.h"

namespace troika {

struct PackOptions {
  std::vector<Path> files;
  Path output;
  bool overwrite = false;
  // Columns, types, places and categories are this dataset's, whatever the files hold, so that what was
  // trained on it fits the rows.
  std::optional<Dataset> like;
  int threads = 1;
  CsvLimits limits;
  int64_t shard_bytes = int64_t{64} << 20;
  int64_t checksum_block_bytes = int64_t{1} << 20;
  // The memory for categories: a column that goes beyond its share, or the largest when all together go
  // beyond the total, is left out and named.
  uint64_t dictionary_bytes = uint64_t{64} << 20;
  uint64_t all_dictionaries_bytes = uint64_t{128} << 20;
};

struct PackProgress {
  int pass = 1;
  uint64_t file_bytes_done = 0, file_bytes = 0;  // on disk
  uint64_t text_bytes = 0;                       // CSV text of this pass so far
  int64_t rows = 0;
  double pass_seconds = 0;
};

/// A column whose cells contradicted what the samples said; it took another pass.
struct WidenedColumn {
  std::string name;
  ColumnShape sampled, found;
  std::string file;
  int64_t line = 0;  // of the first cell that contradicted, 0 if no single one did
  std::string text;
};

/// Numbers of a column that float32 couldn't take as they are.
struct NumberLoss {
  std::string name;
  int64_t beyond_float = 0;       // too large: stored as null
  int64_t infinite = 0;           // stored as infinity
  bool rounded_integers = false;  // whole numbers beyond 2^24 in a column of floats: rounded
};

/// Cells of a category column whose text PackOptions::like doesn't know: stored as null.
struct UnseenCategories {
  std::string name;
  int64_t cells = 0;
  std::string first;
};

struct PackReport {
  Dataset dataset;
  uint64_t text_bytes = 0;  // CSV text in the files
  uint64_t file_bytes = 0;  // on disk
  double seconds = 0;
  int passes = 1;
  std::vector<RejectedRow> first_rejects;
  std::vector<WidenedColumn> widened;
  std::vector<NumberLoss> losses;
  // With PackOptions::like only. Columns of the files that it doesn't have are in dataset.left_out.
  std::vector<std::string> absent;  // columns that the files don't have: null in every row
  std::vector<UnseenCategories> unseen;
};

/// Calls `progress` on the calling thread several times a second. Throws Error for anything that keeps the
/// dataset from being whole and useful; then nothing is left at the output. Ends with an Error when
/// interrupted(). With `like`, columns are found by name; the files may lack some (the target of rows to be
/// predicted), but not all.
PackReport pack(const PackOptions& options, const Sniff& sniff,
                const std::function<void(const PackProgress&)>& progress);

}  // namespace troika

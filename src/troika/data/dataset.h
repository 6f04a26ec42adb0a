// A dataset on disk, as a value: what manifest.json says, and where each column's numbers are.
//
// Layout (docs/dataset_format.md): a folder with manifest.json and shards of about 64 MiB. Shard k has
//   x-00000k.npy  float32 [rows, float_columns]: numbers, booleans (0/1) and category codes; null = NaN
//   i-00000k.npy  int64   [rows, int_columns]: timestamps (ns since 1970 UTC), whole numbers that float32
//   would
//                 change (beyond 2^24); null = INT64_MIN; absent if there are none
// both row-major and plain: numpy.load opens them. Rows keep the order of the source.
// Threading: values; const access from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/base/file.h"

namespace troika {

constexpr int kDatasetFormat = 1;

enum class ColumnType { number, integer, boolean, category, timestamp };
std::string_view name_of(
    ColumnType type);  // as in the manifest and `pack --json`: float, int, bool, category, timestamp

/// Which array of a shard holds a column.
enum class Storage { floats, ints };

struct Column {
  std::string name;
  ColumnType type = ColumnType::number;
  Storage storage = Storage::floats;
  int index = 0;  // column within that array
  int64_t nulls = 0;
  double minimum = 0, maximum = 0;      // over non-null values (numbers, codes, ns); 0 if all are null
  double mean = 0, deviation = 0;       // population standard deviation; number, integer and boolean only
  std::vector<std::string> categories;  // code -> text, in order of first appearance; category only
};

struct Shard {
  int64_t rows = 0;
  std::string floats_file, ints_file;  // names in the folder; "" if there is no such array
  std::vector<uint64_t> floats_checksums,
      ints_checksums;                        // xxHash64 of each checksum_block_bytes of the whole file
  int64_t floats_bytes = 0, ints_bytes = 0;  // size of the whole file
};

struct Dataset {
  Path folder;
  int64_t rows = 0;
  int float_columns = 0;
  int int_columns = 0;
  int64_t checksum_block_bytes = 1 << 20;
  std::vector<Column> columns;  // in the source's order
  std::vector<Shard> shards;    // in row order
  uint64_t fingerprint = 0;     // hash of the manifest; part of a run's identity
  // Where it came from, for people and for the check that a re-import would change nothing.
  std::string source_path;
  uint64_t source_bytes = 0, source_fingerprint = 0;
  int64_t rejected_rows = 0;
  std::vector<std::string> left_out;  // columns with more different texts than the importer holds

  /// Bytes of one row over both arrays.
  int64_t row_bytes() const {
    return 4 * static_cast<int64_t>(float_columns) + 8 * static_cast<int64_t>(int_columns);
  }
  /// Throws UsageError that names the nearest column and lists them.
  const Column& column(std::string_view name) const;
};

/// Reads and checks manifest.json and the sizes and headers of all shards (not the checksums). Throws Error
/// naming the file and the field if anything is off.
Dataset open_dataset(const Path& folder);

/// The manifest as text; open_dataset's inverse.
std::string manifest_json(const Dataset& dataset);

/// Compares every checksum; throws Error naming shard, block and byte range of the first that differs.
void check_dataset(const Dataset& dataset);

}  // namespace troika

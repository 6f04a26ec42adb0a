// Small datasets for tests and benchmarks: writes the shards and fills the Dataset by itself, without the
// importer.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "troika/base/file.h"
#include "troika/base/random.h"
#include "troika/data/dataset.h"
#include "troika/data/npy.h"

namespace troika {

struct DatasetShape {
  int64_t rows = 0;
  int float_columns = 1;
  int int_columns = 1;
  int64_t rows_per_shard = std::numeric_limits<int64_t>::max();
  int64_t checksum_block_bytes = 1 << 20;
  std::function<float(int64_t row, int column)> float_at = {};  // default: test_float
  std::function<int64_t(int64_t row, int column)> int_at = {};  // default: the row's number + column
};

/// A value that tells its row and column apart from their neighbours.
inline float test_float(int64_t row, int column) {
  return static_cast<float>(row % 1'000'003) + static_cast<float>(column) * 0.125f;
}

/// Writes one array of a shard; returns its checksums.
inline std::vector<uint64_t> write_array(const Path& path, const std::string& header,
                                         std::span<const std::byte> data, int64_t block_bytes) {
  std::string content = header;
  content.append(reinterpret_cast<const char*>(data.data()), data.size());
  write_all(open_to_write(path), std::as_bytes(std::span(content)), path);
  std::vector<uint64_t> checksums;
  for (size_t at = 0; at < content.size(); at += static_cast<size_t>(block_bytes)) {
    checksums.push_back(hash64(std::string_view(content).substr(at, static_cast<size_t>(block_bytes))));
  }
  return checksums;
}

/// Columns are named f0, f1, ... (numbers) and i0, i1, ... (timestamps); a test may change them afterwards.
inline Dataset make_dataset(const Path& folder, const DatasetShape& shape) {
  Dataset dataset;
  dataset.folder = folder;
  dataset.rows = shape.rows;
  dataset.float_columns = shape.float_columns;
  dataset.int_columns = shape.int_columns;
  dataset.checksum_block_bytes = shape.checksum_block_bytes;
  for (int c = 0; c < shape.float_columns; ++c) {
    Column column;
    column.name = "f" + std::to_string(c);
    column.index = c;
    dataset.columns.push_back(column);
  }
  for (int c = 0; c < shape.int_columns; ++c) {
    Column column;
    column.name = "i" + std::to_string(c);
    column.type = ColumnType::timestamp;
    column.storage = Storage::ints;
    column.index = c;
    dataset.columns.push_back(column);
  }
  for (int64_t begin = 0; begin < shape.rows;) {
    Shard shard;
    shard.rows = std::min(shape.rows_per_shard, shape.rows - begin);
    const std::string number = fmt::format("{:06}.npy", dataset.shards.size());
    if (shape.float_columns > 0) {
      std::vector<float> floats;
      floats.reserve(static_cast<size_t>(shard.rows * shape.float_columns));
      for (int64_t row = begin; row < begin + shard.rows; ++row) {
        for (int c = 0; c < shape.float_columns; ++c) {
          floats.push_back(shape.float_at ? shape.float_at(row, c) : test_float(row, c));
        }
      }
      shard.floats_file = "x-" + number;
      shard.floats_bytes = static_cast<int64_t>(kNpyHeaderBytes) + static_cast<int64_t>(4 * floats.size());
      shard.floats_checksums = write_array(folder / shard.floats_file,
                                           npy_header(NpyType::float32, shard.rows, shape.float_columns),
                                           std::as_bytes(std::span(floats)), shape.checksum_block_bytes);
    }
    if (shape.int_columns > 0) {
      std::vector<int64_t> ints;
      ints.reserve(static_cast<size_t>(shard.rows * shape.int_columns));
      for (int64_t row = begin; row < begin + shard.rows; ++row) {
        for (int c = 0; c < shape.int_columns; ++c)
          ints.push_back(shape.int_at ? shape.int_at(row, c) : row + c);
      }
      shard.ints_file = "i-" + number;
      shard.ints_bytes = static_cast<int64_t>(kNpyHeaderBytes) + static_cast<int64_t>(8 * ints.size());
      shard.ints_checksums =
          write_array(folder / shard.ints_file, npy_header(NpyType::int64, shard.rows, shape.int_columns),
                      std::as_bytes(std::span(ints)), shape.checksum_block_bytes);
    }
    begin += shard.rows;
    dataset.shards.push_back(std::move(shard));
  }
  return dataset;
}

}  // namespace troika

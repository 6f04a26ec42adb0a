// Planting a number in a dataset that write_flock wrote.
#pragma once

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "troika/base/random.h"
#include "troika/data/dataset.h"

namespace troika {

/// Writes over one float of a flock, and mends the checksums of `flock`, not those in its manifest. The
/// columns' ranges don't know of it, as they don't of infinities that were packed.
inline void write_cell(Dataset& flock, const std::string& column, int64_t row, float value) {
  Shard& shard = flock.shards.at(0);
  const Path file = flock.folder / shard.floats_file;
  std::stringstream all;
  all << std::ifstream(file, std::ios::binary).rdbuf();
  std::string bytes = all.str();
  const int64_t cells = shard.rows * flock.float_columns;
  const int64_t cell = row * flock.float_columns + flock.column(column).index;
  std::memcpy(bytes.data() + bytes.size() - static_cast<size_t>(4 * (cells - cell)), &value, sizeof value);
  std::ofstream(file, std::ios::binary) << bytes;
  const auto block = static_cast<size_t>(flock.checksum_block_bytes);
  for (size_t i = 0; i < shard.floats_checksums.size(); ++i) {
    shard.floats_checksums[i] = hash64(std::string_view(bytes).substr(i * block, block));
  }
}

}  // namespace troika

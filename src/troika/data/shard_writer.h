// Writes rows into shards of a stated size, in order. Belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "troika/data/dataset.h"
#include "troika/data/npy_writer.h"

namespace troika {

class ShardWriter {
 public:
  /// `shard_bytes` is about the size of a shard, over both arrays.
  ShardWriter(Path folder, int float_columns, int int_columns, int64_t shard_bytes,
              int64_t checksum_block_bytes);

  void append(int64_t rows, std::span<const float> floats, std::span<const int64_t> ints);

  /// Closes the last shard and syncs them all; returns them in row order.
  std::vector<Shard> finish();

 private:
  void open_shard();
  void close_shard();
  Path folder_;
  int float_columns_, int_columns_;
  int64_t rows_per_shard_;
  size_t checksum_block_bytes_;
  std::optional<NpyWriter> floats_, ints_;
  std::vector<Shard> shards_;
  int64_t room_ = 0;  // rows that still fit into the open shard
};

}  // namespace troika

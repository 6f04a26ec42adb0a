#include "troika/data/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "troika/data/npy.h"

namespace troika {

ShardWriter::ShardWriter(Path folder, int float_columns, int int_columns, int64_t shard_bytes,
                         int64_t checksum_block_bytes)
    : folder_(std::move(folder)),
      float_columns_(float_columns),
      int_columns_(int_columns),
      rows_per_shard_(
          std::max<int64_t>(1, shard_bytes / (int64_t{4} * float_columns + int64_t{8} * int_columns))),
      checksum_block_bytes_(static_cast<size_t>(checksum_block_bytes)) {}

void ShardWriter::open_shard() {
  Shard shard;
  if (float_columns_ > 0) {
    shard.floats_file = fmt::format("x-{:06}.npy", shards_.size());
    floats_.emplace(folder_ / shard.floats_file, NpyType::float32, float_columns_, checksum_block_bytes_);
  }
  if (int_columns_ > 0) {
    shard.ints_file = fmt::format("i-{:06}.npy", shards_.size());
    ints_.emplace(folder_ / shard.ints_file, NpyType::int64, int_columns_, checksum_block_bytes_);
  }
  shards_.push_back(std::move(shard));
  room_ = rows_per_shard_;
}

void ShardWriter::close_shard() {
  if (shards_.empty()) return;
  Shard& shard = shards_.back();
  shard.rows = rows_per_shard_ - room_;
  if (floats_) {
    floats_->close();
    shard.floats_bytes = floats_->bytes();
    shard.floats_checksums = floats_->checksums();
    floats_.reset();
  }
  if (ints_) {
    ints_->close();
    shard.ints_bytes = ints_->bytes();
    shard.ints_checksums = ints_->checksums();
    ints_.reset();
  }
}

void ShardWriter::append(int64_t rows, std::span<const float> floats, std::span<const int64_t> ints) {
  while (rows > 0) {
    if (room_ == 0) {
      close_shard();
      open_shard();
    }
    const int64_t taken = std::min(rows, room_);
    const auto float_count = static_cast<size_t>(taken * float_columns_);
    const auto int_count = static_cast<size_t>(taken * int_columns_);
    if (floats_) floats_->append(std::as_bytes(floats.first(float_count)));
    if (ints_) ints_->append(std::as_bytes(ints.first(int_count)));
    floats = floats.subspan(float_count);
    ints = ints.subspan(int_count);
    rows -= taken;
    room_ -= taken;
  }
}

std::vector<Shard> ShardWriter::finish() {
  close_shard();
  for (const Shard& shard : shards_) {
    for (const std::string& name : {shard.floats_file, shard.ints_file}) {
      if (!name.empty()) sync_file(open_to_read(folder_ / name), folder_ / name);
    }
  }
  return std::move(shards_);
}

}  // namespace troika

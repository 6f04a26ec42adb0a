// Writes a .npy file row by row, with the checksum of each of its blocks. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "troika/base/file.h"
#include "troika/data/npy.h"

namespace troika {

/// The number of rows is filled in by close(), which must be called; until then the file has no header.
class NpyWriter {
 public:
  NpyWriter(Path path, NpyType type, int64_t columns, size_t checksum_block_bytes);
  /// Whole rows.
  void append(std::span<const std::byte> rows);
  /// Fills in the header and closes; syncing is the caller's.
  void close();
  int64_t bytes() const { return bytes_; }
  const std::vector<uint64_t>& checksums() const { return checksums_; }

 private:
  void flush_block();
  Path path_;
  NpyType type_;
  int64_t columns_;
  size_t block_bytes_;
  FileHandle file_;
  std::vector<std::byte> block_;        // the one being filled
  std::vector<std::byte> first_block_;  // kept, as its header comes last
  std::vector<uint64_t> checksums_;
  int64_t bytes_ = 0;
};

}  // namespace troika

// The arrays of a dataset's shards as ranges of bytes, either mapped or read; every checksum block is
// compared with the manifest the first time something in it is used.
//
// Threading: an object belongs to one thread; the mapped bytes it hands out may be read from any.
#pragma once

#include <span>
#include <vector>

#include "troika/base/split.h"
#include "troika/data/dataset.h"

namespace troika {

class ShardReader {
 public:
  enum class How { mapped, random_reads, sequential_reads };

  /// Compares the files' sizes with the manifest and their headers with the shards. Throws Error naming the
  /// file.
  ShardReader(const Dataset& dataset, How how);

  /// Row `rows` of shard `shard` in its float or int array, where they are mapped. Tells the system to fetch
  /// them; verifies what wasn't yet.
  const std::byte* map_rows(int shard, Storage storage, Range rows);

  /// Reads them to `out`, which is as large as they are.
  void read_rows(int shard, Storage storage, Range rows, std::span<std::byte> out);

  /// Bytes of one row in that array; 0 if the dataset has none.
  int64_t row_bytes(Storage storage) const {
    return storage == Storage::floats ? float_row_bytes_ : int_row_bytes_;
  }

  /// What it holds besides mapped files.
  int64_t bytes() const;

 private:
  struct Array {
    Path path;
    int64_t bytes = 0;
    const std::vector<uint64_t>* checksums = nullptr;
    std::vector<bool> verified;  // per checksum block
    MappedFile mapped;
    FileHandle file;
  };

  void open_array(const Shard& shard, Storage storage, Array& array);
  Array& array(int shard, Storage storage);
  Range byte_range(Storage storage, Range rows) const;
  void compare(Array& array, size_t block, std::span<const std::byte> content);
  Range block_bytes(const Array& array, size_t block) const;
  const FileHandle& file_of(Array& array);

  How how_;
  int64_t block_size_;
  int64_t float_row_bytes_, int_row_bytes_;
  std::vector<Array> floats_, ints_;  // per shard
  std::vector<Shard> shards_;         // the checksums
  int64_t open_files_ = 0;
  std::vector<std::byte> scratch_;  // one checksum block
};

}  // namespace troika

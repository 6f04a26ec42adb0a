#include "troika/data/source_shards.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/data/npy.h"

namespace troika {
namespace {

// Far below the usual limit of 1,024 descriptors, which other parts need too.
constexpr int64_t kMaxOpenFiles = 128;

constexpr auto kHeader = static_cast<int64_t>(kNpyHeaderBytes);

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

ShardReader::ShardReader(const Dataset& dataset, How how)
    : how_(how),
      block_size_(dataset.checksum_block_bytes),
      float_row_bytes_(4 * static_cast<int64_t>(dataset.float_columns)),
      int_row_bytes_(8 * static_cast<int64_t>(dataset.int_columns)),
      floats_(dataset.shards.size()),
      ints_(dataset.shards.size()),
      shards_(dataset.shards) {
  TROIKA_ASSERT(block_size_ > 0, "checksum blocks without bytes");
  for (size_t k = 0; k < shards_.size(); ++k) {
    floats_[k].path = dataset.folder / shards_[k].floats_file;
    ints_[k].path = dataset.folder / shards_[k].ints_file;
    if (float_row_bytes_ > 0) open_array(shards_[k], Storage::floats, floats_[k]);
    if (int_row_bytes_ > 0) open_array(shards_[k], Storage::ints, ints_[k]);
  }
  if (how_ == How::mapped) return;
  int64_t longest = 0;
  for (const std::vector<Array>* arrays : {&floats_, &ints_}) {
    for (const Array& array : *arrays) longest = std::max(longest, array.bytes);
  }
  scratch_.resize(static_cast<size_t>(std::min(block_size_, longest)));
}

void ShardReader::open_array(const Shard& shard, Storage storage, Array& array) {
  const bool floats = storage == Storage::floats;
  array.bytes = floats ? shard.floats_bytes : shard.ints_bytes;
  array.checksums = floats ? &shard.floats_checksums : &shard.ints_checksums;
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(array.path, error));
  if (error) fail("can't look at {}: {}; is the dataset complete?", array.path.string(), error.message());
  if (size != array.bytes) {
    fail("{} has {} bytes, the manifest says {}: it was {}; import the data again", array.path.string(), size,
         array.bytes, size < array.bytes ? "cut short" : "changed");
  }
  const auto blocks = static_cast<size_t>((array.bytes + block_size_ - 1) / block_size_);
  if (array.checksums->size() != blocks) {
    fail("{}: the manifest has {} checksums for {} blocks; import the data again", array.path.string(),
         array.checksums->size(), blocks);
  }
  array.verified.assign(blocks, false);
  const int64_t row_bytes = this->row_bytes(storage);
  const NpyType type = floats ? NpyType::float32 : NpyType::int64;
  const auto columns = row_bytes / static_cast<int64_t>(item_bytes(type));
  std::string header(kNpyHeaderBytes, '\0');
  read_exactly(open_to_read(array.path), std::as_writable_bytes(std::span(header)), 0, array.path);
  if (header != npy_header(type, shard.rows, columns) ||
      array.bytes != static_cast<int64_t>(kNpyHeaderBytes) + shard.rows * row_bytes) {
    fail("{} has another .npy header than {} rows of {} columns, as the manifest says; import the data again",
         array.path.string(), shard.rows, columns);
  }
  if (how_ == How::mapped) array.mapped = MappedFile(array.path);
}

ShardReader::Array& ShardReader::array(int shard, Storage storage) {
  return (storage == Storage::floats ? floats_ : ints_)[static_cast<size_t>(shard)];
}

Range ShardReader::byte_range(Storage storage, Range rows) const {
  const int64_t row_bytes = this->row_bytes(storage);
  return {kHeader + rows.begin * row_bytes, kHeader + rows.end * row_bytes};
}

Range ShardReader::block_bytes(const Array& array, size_t block) const {
  const int64_t begin = static_cast<int64_t>(block) * block_size_;
  return {begin, std::min(begin + block_size_, array.bytes)};
}

void ShardReader::compare(Array& array, size_t block, std::span<const std::byte> content) {
  const uint64_t expected = (*array.checksums)[block];
  const uint64_t got = hash64(as_text(content));
  if (got != expected) {
    const Range bytes = block_bytes(array, block);
    fail(
        "{} is corrupt: block {} (bytes {} to {}) has checksum {:016x}, the manifest says {:016x}; import "
        "the data again, "
        "or restore the file",
        array.path.string(), block, bytes.begin, bytes.end - 1, got, expected);
  }
  array.verified[block] = true;
}

const std::byte* ShardReader::map_rows(int shard, Storage storage, Range rows) {
  Array& array = this->array(shard, storage);
  const Range bytes = byte_range(storage, rows);
  const std::span<const std::byte> file = array.mapped.bytes();
  const std::byte* const first = file.data() + bytes.begin;
  if (bytes.size() == 0) return first;
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t page = reinterpret_cast<uintptr_t>(first) & ~(kPage - 1);
  // Only a hint: where it isn't taken, the pages come at their first touch.
  ::madvise(reinterpret_cast<void*>(page),
            reinterpret_cast<uintptr_t>(first) + static_cast<uintptr_t>(bytes.size()) - page, MADV_WILLNEED);
  const auto last = static_cast<size_t>((bytes.end - 1) / block_size_);
  for (auto block = static_cast<size_t>(bytes.begin / block_size_); block <= last; ++block) {
    if (array.verified[block]) continue;
    const Range whole = block_bytes(array, block);
    compare(array, block, file.subspan(static_cast<size_t>(whole.begin), static_cast<size_t>(whole.size())));
  }
  return first;
}

void ShardReader::read_rows(int shard, Storage storage, Range rows, std::span<std::byte> out) {
  Array& array = this->array(shard, storage);
  const Range bytes = byte_range(storage, rows);
  TROIKA_ASSERT(static_cast<int64_t>(out.size()) == bytes.size(),
                fmt::format("{} bytes for {}", out.size(), bytes.size()));
  const auto part = [&](Range range) {
    return out.subspan(static_cast<size_t>(range.begin - bytes.begin), static_cast<size_t>(range.size()));
  };
  for (int64_t at = bytes.begin; at < bytes.end;) {
    const auto block = static_cast<size_t>(at / block_size_);
    if (!array.verified[block]) {
      const Range whole = block_bytes(array, block);
      const std::span<std::byte> content(scratch_.data(), static_cast<size_t>(whole.size()));
      read_exactly(file_of(array), content, static_cast<uint64_t>(whole.begin), array.path);
      compare(array, block, content);
      const Range wanted{at, std::min(bytes.end, whole.end)};
      std::memcpy(part(wanted).data(), content.data() + (wanted.begin - whole.begin),
                  static_cast<size_t>(wanted.size()));
      at = wanted.end;
      continue;
    }
    int64_t end = block_bytes(array, block).end;
    while (end < bytes.end && array.verified[static_cast<size_t>(end / block_size_)]) end += block_size_;
    const Range known{at, std::min(end, bytes.end)};
    read_exactly(file_of(array), part(known), static_cast<uint64_t>(at), array.path);
    at = known.end;
  }
}

const FileHandle& ShardReader::file_of(Array& array) {
  if (array.file) return array.file;
  if (open_files_ == kMaxOpenFiles) {
    for (std::vector<Array>* arrays : {&floats_, &ints_}) {
      for (Array& other : *arrays) other.file.close();
    }
    open_files_ = 0;
  }
  array.file = open_to_read(array.path);
  // For shuffled blocks the system's own read-ahead would fetch rows whose turn comes much later.
  const bool sequential = how_ == How::sequential_reads;
  ::posix_fadvise(array.file.get(), 0, 0, sequential ? POSIX_FADV_SEQUENTIAL : POSIX_FADV_RANDOM);
  ++open_files_;
  return array.file;
}

int64_t ShardReader::bytes() const {
  auto total = static_cast<int64_t>(scratch_.size());
  for (const std::vector<Array>* arrays : {&floats_, &ints_}) {
    for (const Array& array : *arrays) {
      total +=
          static_cast<int64_t>(sizeof(Array) + 2 * array.path.native().size() + array.verified.size() / 8);
      if (array.checksums != nullptr) total += 8 * static_cast<int64_t>(array.checksums->size());
    }
  }
  return total + static_cast<int64_t>(shards_.size() * sizeof(Shard));
}

}  // namespace troika

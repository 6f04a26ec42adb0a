#include "troika/data/npy_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "troika/base/error.h"
#include "troika/base/random.h"

namespace troika {
namespace {

uint64_t checksum(std::span<const std::byte> bytes) {
  return hash64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

NpyWriter::NpyWriter(Path path, NpyType type, int64_t columns, size_t checksum_block_bytes)
    : path_(std::move(path)),
      type_(type),
      columns_(columns),
      block_bytes_(checksum_block_bytes),
      file_(open_to_write(path_)),
      block_(kNpyHeaderBytes),
      bytes_(kNpyHeaderBytes) {
  TROIKA_ASSERT(block_bytes_ >= kNpyHeaderBytes, "the header lies in the first block");
  block_.reserve(block_bytes_);
}

void NpyWriter::append(std::span<const std::byte> rows) {
  bytes_ += static_cast<int64_t>(rows.size());
  while (!rows.empty()) {
    const size_t taken = std::min(rows.size(), block_bytes_ - block_.size());
    block_.insert(block_.end(), rows.begin(), rows.begin() + static_cast<ptrdiff_t>(taken));
    rows = rows.subspan(taken);
    if (block_.size() == block_bytes_) flush_block();
  }
}

void NpyWriter::flush_block() {
  write_all(file_, block_, path_);
  // Only a hint: starts the disk while the next blocks are made, so that the sync at the end has little to
  // wait for.
  ::sync_file_range(file_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  if (checksums_.empty()) first_block_ = block_;
  checksums_.push_back(checksum(block_));
  block_.clear();
}

void NpyWriter::close() {
  if (!block_.empty()) flush_block();
  const auto row_bytes = static_cast<int64_t>(item_bytes(type_)) * columns_;
  const std::string header =
      npy_header(type_, (bytes_ - static_cast<int64_t>(kNpyHeaderBytes)) / row_bytes, columns_);
  std::ranges::copy(std::as_bytes(std::span(header)), first_block_.begin());
  checksums_.front() = checksum(first_block_);
  if (::lseek(file_.get(), 0, SEEK_SET) != 0)
    fail("can't go back in {}: {}", path_.string(), system_message(errno));
  write_all(file_, std::as_bytes(std::span(header)), path_);
  file_.close();
}

}  // namespace troika

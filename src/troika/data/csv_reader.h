// Cuts CSV files into blocks of whole records, in order, within a bounded memory. Belongs to one thread at a
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troika/data/csv_input.h"
#include "troika/data/csv_record.h"

namespace troika {

struct CsvLimits {
  size_t block_bytes = size_t{1} << 20;
  size_t record_bytes = size_t{1} << 24;  // a longer record is rejected
};

/// Some records. bytes holds kBlockPadding more than `size`.
struct CsvBlock {
  std::vector<char> bytes;
  size_t size = 0;
  size_t index = 0;     // over all files
  size_t file = 0;      // which of the files
  uint64_t offset = 0;  // of the first byte in the (unpacked) file
  int64_t first_line =
      0;  // of the file; known only if it follows a header: else 0, and lines go on from the last block
  bool too_long = false;  // the beginning of one record beyond the limit; the rest has been skipped
  std::string_view text() const { return {bytes.data(), size}; }
};

/// The text of the first record that isn't blank, its line (from 1) and where the next record begins.
struct CsvHeader {
  std::vector<std::string> names;  // as they are in the file
  std::string text;
  int64_t line = 1;
  int64_t next_line = 2;
};

/// Names for columns: trimmed; "column_3" for an empty third one. Throws Error if two are the same.
std::vector<std::string> column_names(const std::vector<std::string>& header, const Path& path);

class CsvReader {
 public:
  /// Every file has the header `names` (checked when it is reached; throws Error naming the first that
  /// differs).
  CsvReader(std::vector<Path> files, CsvDialect dialect, std::vector<std::string> names, CsvLimits limits);

  /// The next block, into `block` (whose memory is used again); false at the end.
  bool next(CsvBlock& block);

  /// Bytes of the files on disk that have been used, and of CSV text that has been read.
  uint64_t file_position() const;
  uint64_t text_bytes() const { return text_bytes_; }

 private:
  void open_next_file();
  size_t fill(CsvBlock& block, size_t have, size_t want);
  void give_back(const CsvBlock& block, size_t from, size_t to);
  void skip_line(CsvBlock& block);

  std::vector<Path> files_;
  CsvDialect dialect_;
  std::vector<std::string> names_;
  CsvLimits limits_;
  std::optional<CsvInput> input_;
  size_t next_file_ = 0, next_index_ = 0;
  std::vector<char> pending_;  // read but not in a block yet; from pending_at_ on
  size_t pending_at_ = 0;
  uint64_t offset_ = 0;       // of the next block in this file
  int64_t header_lines_ = 0;  // line of the first record after the header, until a block has taken it
  uint64_t done_files_bytes_ = 0, text_bytes_ = 0;
};

/// Reads the header of `text`, the beginning of a file (behind a byte order mark); `whole` if there is
/// nothing more. Throws Error if there is none, or if it is no text.
CsvHeader read_header(std::string_view text, bool whole, const CsvDialect& dialect, const Path& path,
                      size_t& header_end);

/// Length of a UTF-8 byte order mark at the front, or 0.
size_t byte_order_mark(std::string_view text);

}  // namespace troika

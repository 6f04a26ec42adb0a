// rejects.csv: every record that isn't loaded, with where it stands and why. Belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/data/csv_parse.h"

namespace troika {

/// A rejected record, for people.
struct RejectedRow {
  std::string file;
  int64_t line = 0;   // from 1
  uint64_t byte = 0;  // from 0, in the unpacked file
  std::string reason;
  std::string text;  // the beginning
};

class RejectFile {
 public:
  explicit RejectFile(Path path);
  /// `first_line` is the line of the block's first byte.
  void append(const CsvBlock& block, const std::vector<Reject>& rejects, const std::string& file,
              int64_t first_line);
  int64_t count() const { return count_; }
  const std::vector<RejectedRow>& first_few() const { return first_few_; }
  /// Writes what is left and syncs. The file exists only if something was rejected.
  void close();

 private:
  void flush();
  Path path_;
  FileHandle file_;
  std::string buffer_;
  std::vector<RejectedRow> first_few_;
  int64_t count_ = 0;
};

}  // namespace troika

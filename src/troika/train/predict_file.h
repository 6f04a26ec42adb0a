// The CSV that predict writes: there whole or not at all. Threading: belongs to one thread.
#pragma once

#include <string>

#include "troika/base/file.h"

namespace troika {

/// Text goes to a temporary file beside `path`, which commit() renames to it; without commit() the destructor
/// removes it. "-" is standard output; that, a device and a pipe get the text as it comes. A link stays a
/// link. The constructor throws UsageError if `path` is a folder, lies in none, or is there already (unless
/// `overwrite`); all of them Error naming `path` if it can't be written.
class PredictionFile {
 public:
  PredictionFile(const Path& path, bool overwrite);
  PredictionFile(const PredictionFile&) = delete;
  PredictionFile& operator=(const PredictionFile&) = delete;
  ~PredictionFile();

  void add(const std::string& text);
  void commit();

 private:
  void flush();

  Path path_;
  Path target_, temporary_;  // empty if there is no temporary file
  FileHandle file_;
  bool to_standard_output_ = false;
  std::string buffer_;
};

/// As one cell of a CSV: in quotes if it has a comma, a quote or a line's end in it.
std::string csv_cell(const std::string& text);

}  // namespace troika

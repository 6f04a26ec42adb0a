// The CSV that predict writes: there whole or not at all. Threading: belongs to one thread.
#pragma once

#include <optional>
#include <string>

#include "troika/base/file.h"

namespace troika {

/// A WholeFile, or standard output if `path` is "-". The constructor throws UsageError if `path` is a folder,
/// lies in none, or is there already (unless `overwrite`); all of them Error naming `path` if it can't be
/// written.
class PredictionFile {
 public:
  PredictionFile(const Path& path, bool overwrite);

  void add(const std::string& text);
  void commit();

 private:
  void flush();

  std::optional<WholeFile> file_;  // none: standard output
  std::string buffer_;
};

}  // namespace troika

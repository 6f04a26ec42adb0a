// The bytes of a file, mostly of a CSV, whatever it is packed in: plain, gzip or zstd (by their first bytes,
// not the name), or the only CSV in a zip. Streams; never holds more than a buffer. Belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "troika/base/file.h"

namespace troika {

enum class Packing { none, stream, zip };
/// What the file is taken for: CSV, or bytes of any kind, of which only gzip and zstd are unpacked.
enum class FileContent { csv, any };

class CsvInput {
 public:
  /// Throws Error if the file is missing, is no regular file, is of a kind that holds no CSV, or is a zip
  /// with no CSV or with several.
  explicit CsvInput(const Path& path, FileContent content = FileContent::csv);
  CsvInput(CsvInput&&) noexcept;
  ~CsvInput();

  /// Fills `bytes` but for the end of the data; how many it was. Throws Error if the packed data is damaged
  /// or cut.
  size_t read(std::span<char> bytes);

  /// How far it has got in the file on disk, and the file's size.
  uint64_t file_position() const;
  uint64_t file_bytes() const;

  Packing packing() const;

 private:
  struct Archive;
  Path path_;
  FileHandle file_;
  std::unique_ptr<Archive> archive_;
  Packing packing_ = Packing::none;
  uint64_t position_ = 0, file_bytes_ = 0;
};

}  // namespace troika

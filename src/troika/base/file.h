// Files that are whole or absent, mapped files, and folders that vanish when a command fails half-way.
// Every error names the path and the system's reason. Objects belong to one thread; functions are
// thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace troika {

using Path = std::filesystem::path;

/// Owns a file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

FileHandle open_to_read(const Path& path);

/// Creates (or empties) a file for writing.
FileHandle open_to_write(const Path& path);

void write_all(const FileHandle& file, std::span<const std::byte> bytes, const Path& path_for_errors);

/// Reads exactly `bytes.size()` at `offset`; throws Error if the file ends earlier.
void read_exactly(const FileHandle& file, std::span<std::byte> bytes, uint64_t offset,
                  const Path& path_for_errors);

/// fsync; the data is on disk when it returns.
void sync_file(const FileHandle& file, const Path& path_for_errors);

std::string read_text(const Path& path);

/// Where a chain of links leads, also to a file that isn't there yet. Throws Error if they go round.
Path end_of_links(Path path);

/// A file that is written to a temporary name beside `path`; commit() syncs it and renames it over `path`,
/// without that the destructor removes it. A crash leaves the old file or the new one, never a mixture. A
/// link stays a link; a device or a pipe is written to as it is.
class WholeFile {
 public:
  explicit WholeFile(Path path);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();

  void write(std::string_view text);
  void commit();

 private:
  Path path_;
  Path target_, temporary_;  // empty for a device
  FileHandle file_;
};

/// Writes `path` whole, as WholeFile does.
void write_whole(const Path& path, std::string_view content);

/// A file mapped read-only; size 0 is fine.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const Path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Makes a folder and those above it that are missing, and can take back what it made.
class CreatedFolders {
 public:
  /// Throws Error naming the folder.
  explicit CreatedFolders(Path folder);
  /// Removes the folders that were made, as far as they are empty. For a failure that is on its way already.
  void remove() const noexcept;

 private:
  Path folder_;
  Path topmost_;  // of those that were made; empty if there were none
};

/// A folder built under a temporary name beside `target` and renamed to it by commit(). If it is destroyed
/// before that, everything in it is removed, so a failed command leaves nothing behind.
class FolderInProgress {
 public:
  /// Throws UsageError if `target` exists (unless `replace`), or can't be created.
  FolderInProgress(Path target, bool replace);
  FolderInProgress(const FolderInProgress&) = delete;
  FolderInProgress& operator=(const FolderInProgress&) = delete;
  ~FolderInProgress();
  const Path& path() const { return temporary_; }
  void commit();

 private:
  Path target_;
  Path temporary_;
  CreatedFolders created_;
  bool replace_;
  bool committed_ = false;
};

}  // namespace troika

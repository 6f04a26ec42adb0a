#include "troika/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "troika/base/error.h"

namespace troika {
namespace {

[[noreturn]] void fail_with_errno(const char* doing, const Path& path) {
  const int error_number = errno;
  const char* way_out = error_number == ENOSPC || error_number == EDQUOT
                            ? "; free some space, or choose another place"
                        : error_number == EACCES || error_number == EPERM || error_number == EROFS
                            ? "; check the permissions, or choose another place"
                            : "";
  fail("can't {} {}: {}{}", doing, path.string(), system_message(error_number), way_out);
}

FileHandle open_or_fail(const Path& path, int flags, const char* doing, const Path& path_for_errors) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) fail_with_errno(doing, path_for_errors);
  return FileHandle(descriptor);
}

FileHandle open_or_fail(const Path& path, int flags, const char* doing) {
  return open_or_fail(path, flags, doing, path);
}

// A rename is on disk only when the folder that holds the name is.
void sync_folder(const Path& folder) {
  const FileHandle handle = open_or_fail(folder.empty() ? Path(".") : folder, O_RDONLY | O_DIRECTORY, "open");
  ::fsync(handle.get());  // some file systems refuse this for folders; the rename itself is done
}

}  // namespace

FileHandle::FileHandle(FileHandle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

FileHandle::~FileHandle() { close(); }

void FileHandle::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

FileHandle open_to_read(const Path& path) {
  FileHandle handle = open_or_fail(path, O_RDONLY, "open");
  struct stat status {};
  if (::fstat(handle.get(), &status) != 0) fail_with_errno("look at", path);
  if (S_ISDIR(status.st_mode)) fail("{} is a folder, expected a file", path.string());
  return handle;
}

FileHandle open_to_write(const Path& path) {
  return open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC, "create");
}

void write_all(const FileHandle& file, std::span<const std::byte> bytes, const Path& path_for_errors) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("write", path_for_errors);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void read_exactly(const FileHandle& file, std::span<std::byte> bytes, uint64_t offset,
                  const Path& path_for_errors) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno("read", path_for_errors);
    if (got == 0) {
      fail("{} ends at byte {}, {} bytes too early: it was cut short", path_for_errors.string(), offset,
           bytes.size());
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

void sync_file(const FileHandle& file, const Path& path_for_errors) {
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS) fail_with_errno("sync", path_for_errors);
}

std::string read_text(const Path& path) {
  const FileHandle handle = open_to_read(path);
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t got = ::read(handle.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno("read", path);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

Path end_of_links(Path path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  }
  if (!std::filesystem::is_symlink(path, error)) return path;
  errno = ELOOP;
  fail_with_errno("create", path);
}

WholeFile::WholeFile(Path path) : path_(std::move(path)) {
  std::error_code error;
  // A device or a pipe takes what comes; renaming would replace it.
  if (std::filesystem::is_other(path_, error)) {
    file_ = open_or_fail(path_, O_WRONLY, "open");
    return;
  }
  target_ = end_of_links(path_);
  temporary_ = target_.string() + fmt::format(".{}.tmp", ::getpid());
  file_ = open_or_fail(temporary_, O_WRONLY | O_CREAT | O_TRUNC, "create", path_);
}

WholeFile::~WholeFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void WholeFile::write(std::string_view text) { write_all(file_, std::as_bytes(std::span(text)), path_); }

void WholeFile::commit() {
  if (temporary_.empty()) return;
  sync_file(file_, path_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with_errno("create", path_);
  temporary_.clear();
  sync_folder(target_.parent_path());
}

void write_whole(const Path& path, std::string_view content) {
  WholeFile file(path);
  file.write(content);
  file.commit();
}

MappedFile::MappedFile(const Path& path) {
  const FileHandle handle = open_to_read(path);
  struct stat status {};
  if (::fstat(handle.get(), &status) != 0) fail_with_errno("look at", path);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, handle.get(), 0);
  if (address == MAP_FAILED) fail_with_errno("map", path);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

CreatedFolders::CreatedFolders(Path folder) : folder_(std::move(folder)) {
  std::error_code error;
  for (Path missing = folder_; !missing.empty() && !std::filesystem::exists(missing, error);
       missing = missing.parent_path()) {
    topmost_ = missing;
  }
  std::filesystem::create_directories(folder_, error);
  if (error) {
    remove();
    errno = error.value();
    fail_with_errno("create the folder", folder_);
  }
}

void CreatedFolders::remove() const noexcept {
  if (topmost_.empty()) return;
  std::error_code ignored;
  for (Path folder = folder_; std::filesystem::remove(folder, ignored) && folder != topmost_;) {
    folder = folder.parent_path();
  }
}

namespace {

Path without_slash(Path folder) { return folder.filename().empty() ? folder.parent_path() : folder; }

Path free_target(Path target, bool replace) {
  std::error_code error;
  if (!replace && std::filesystem::exists(target, error)) {
    fail_usage("{} exists already; choose another name, or pass --overwrite to replace it", target.string());
  }
  return target;
}

}  // namespace

FolderInProgress::FolderInProgress(Path target, bool replace)
    : target_(free_target(without_slash(std::move(target)), replace)),  // "name/" means "name"
      temporary_(target_.string() + fmt::format(".{}.tmp", ::getpid())),
      created_(temporary_),
      replace_(replace) {}

FolderInProgress::~FolderInProgress() {
  if (committed_) return;
  std::error_code ignored;  // nothing better can be done while another error is on its way
  for (const auto& entry : std::filesystem::directory_iterator(temporary_, ignored)) {
    std::filesystem::remove_all(entry.path(), ignored);
  }
  created_.remove();
}

void FolderInProgress::commit() {
  if (replace_) std::filesystem::remove_all(target_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with_errno("create", target_);
  committed_ = true;
  sync_folder(target_.parent_path());
}

}  // namespace troika

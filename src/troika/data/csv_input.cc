#include "troika/data/csv_input.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr size_t kArchiveRead = 1 << 18;

std::string archive_message(::archive* reader) {
  const char* text = ::archive_error_string(reader);
  return text == nullptr ? "damaged" : text;
}

bool starts_with(std::string_view head, std::string_view magic) {
  return head.substr(0, magic.size()) == magic;
}

Packing packing_of(std::string_view head, const Path& path, FileContent content) {
  const auto refuse = [&](const char* what, const char* way_out) {
    fail("{} is {}, expected CSV text; {}", path.string(), what, way_out);
  };
  if (starts_with(head, "\x1F\x8B") || starts_with(head, "\x28\xB5\x2F\xFD")) return Packing::stream;
  if (content == FileContent::any) return Packing::none;
  if (starts_with(head, "PK\x03\x04")) return Packing::zip;
  if (starts_with(head, "PK\x05\x06")) fail("{} is a zip with nothing in it", path.string());
  if (starts_with(head, "\xFF\xFE") || starts_with(head, "\xFE\xFF")) {
    refuse("UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW");
  }
  if (starts_with(head, "BZh") || starts_with(head,
                                              "\xFD"
                                              "7zXZ"))
    refuse("bzip2 or xz data", "unpack it first");
  if (starts_with(head, "7z\xBC\xAF") || starts_with(head, "Rar!"))
    refuse("a 7z or rar archive", "unpack it first");
  if (head.size() > 262 && head.substr(257, 5) == "ustar") refuse("a tar archive", "unpack it first");
  if (starts_with(head, "PAR1") || starts_with(head, "ARROW1"))
    refuse("a Parquet or Arrow file", "write it as CSV");
  if (starts_with(head, "SQLite format 3")) refuse("an SQLite database", "export the table as CSV");
  if (starts_with(head, "\x89PNG") || starts_with(head, "%PDF") || starts_with(head, "\xD0\xCF\x11\xE0")) {
    refuse("an image or an office document", "export the table as CSV");
  }
  return Packing::none;
}

bool is_csv_name(std::string_view name) {
  std::string lowered(name);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const char* suffix : {".csv", ".tsv", ".tab", ".txt", ".psv", ".dat"}) {
    if (lowered.ends_with(suffix)) return true;
  }
  return false;
}

}  // namespace

struct CsvInput::Archive {
  explicit Archive(const Path& path, Packing packing) : reader(::archive_read_new()) {
    if (reader == nullptr) throw std::bad_alloc();
    if (packing == Packing::zip) {
      ::archive_read_support_format_zip(reader);
    } else {
      ::archive_read_support_filter_gzip(reader);
      ::archive_read_support_filter_zstd(reader);
      ::archive_read_support_format_raw(reader);
    }
    if (::archive_read_open_filename(reader, path.c_str(), kArchiveRead) != ARCHIVE_OK) {
      const std::string message = archive_message(reader);
      ::archive_read_free(reader);
      fail("can't unpack {}: {}", path.string(), message);
    }
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive() { ::archive_read_free(reader); }

  // The next member, or null at the end.
  archive_entry* next(const Path& path) {
    archive_entry* entry = nullptr;
    const int status = ::archive_read_next_header(reader, &entry);
    if (status == ARCHIVE_EOF) return nullptr;
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
      fail("can't unpack {}: {}", path.string(), archive_message(reader));
    return entry;
  }

  static std::string name_of(archive_entry* entry) {
    const char* name = ::archive_entry_pathname(entry);
    return name == nullptr ? "" : name;
  }

  ::archive* reader;
  bool empty = false;
};

namespace {

// Which member to read: the only one that looks like CSV, or the only one there is.
template <typename Archive>
std::string choose_member(const Path& path) {
  Archive archive(path, Packing::zip);
  std::vector<std::string> files, tables;
  while (archive_entry* entry = archive.next(path)) {
    const std::string name = Archive::name_of(entry);
    if (::archive_entry_filetype(entry) == AE_IFDIR || name.ends_with('/') || name.starts_with("__MACOSX/"))
      continue;
    files.push_back(name);
    if (is_csv_name(name)) tables.push_back(name);
  }
  const std::vector<std::string>& candidates = tables.empty() ? files : tables;
  if (candidates.size() == 1) return candidates.front();
  const auto shown = std::span(candidates).first(std::min<size_t>(candidates.size(), 5));
  if (candidates.empty()) fail("{} is a zip without a file in it", path.string());
  fail("{} holds {} {} files ({}{}), expected one CSV; unpack it and pass the files you mean", path.string(),
       candidates.size(), tables.empty() ? "other" : "CSV", fmt::join(shown, ", "),
       candidates.size() > shown.size() ? ", ..." : "");
}

}  // namespace

CsvInput::CsvInput(const Path& path, FileContent content) : path_(path), file_(open_to_read(path)) {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail("can't look at {}: {}", path.string(), system_message(errno));
  if (!S_ISREG(status.st_mode)) {
    fail("{} is no regular file; pack may read a file twice, so save the stream to a file first",
         path.string());
  }
  file_bytes_ = static_cast<uint64_t>(status.st_size);
  std::string head(std::min<uint64_t>(file_bytes_, 512), '\0');
  read_exactly(file_, std::as_writable_bytes(std::span(head)), 0, path);
  packing_ = packing_of(head, path, content);
  if (packing_ == Packing::none) return;
  const std::string member = packing_ == Packing::zip ? choose_member<Archive>(path) : "";
  archive_ = std::make_unique<Archive>(path, packing_);
  while (true) {
    archive_entry* const entry = archive_->next(path);
    if (entry == nullptr && packing_ == Packing::zip)
      fail("can't find {} in {} again", member, path.string());
    archive_->empty = entry == nullptr;
    // The raw reader would hand on what no filter recognises.
    if (packing_ == Packing::stream && entry != nullptr && ::archive_filter_count(archive_->reader) < 2) {
      fail("can't unpack {}: it begins like a packed file, but isn't one; fetch it again", path.string());
    }
    if (packing_ == Packing::stream || Archive::name_of(entry) == member) break;
  }
}

CsvInput::CsvInput(CsvInput&&) noexcept = default;
CsvInput::~CsvInput() = default;

size_t CsvInput::read(std::span<char> bytes) {
  size_t filled = 0;
  while (filled < bytes.size()) {
    ssize_t got = 0;
    if (archive_ == nullptr) {
      got = ::pread(file_.get(), bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(position_));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("can't read {}: {}", path_.string(), system_message(errno));
    } else if (!archive_->empty) {
      got = ::archive_read_data(archive_->reader, bytes.data() + filled, bytes.size() - filled);
      if (got == ARCHIVE_RETRY) continue;
      if (got < 0) {
        fail(
            "can't unpack {} after {} bytes of its content: {}; it is damaged or was cut short, fetch it "
            "again",
            path_.string(), position_, archive_message(archive_->reader));
      }
    }
    if (got == 0) break;
    position_ += static_cast<uint64_t>(got);
    filled += static_cast<size_t>(got);
  }
  return filled;
}

uint64_t CsvInput::file_position() const {
  if (archive_ == nullptr) return position_;
  const auto packed = ::archive_filter_bytes(archive_->reader, -1);
  return packed < 0 ? 0 : std::min(file_bytes_, static_cast<uint64_t>(packed));
}

uint64_t CsvInput::file_bytes() const { return file_bytes_; }
Packing CsvInput::packing() const { return packing_; }

}  // namespace troika

#include "troika/train/predict_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr size_t kFlushBytes = 1 << 20;
constexpr int kMostLinks = 40;

// Where a chain of links leads, also to a file that isn't there yet.
Path end_of_links(const Path& path) {
  std::error_code ignored;
  Path end = path;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(end, ignored); ++i) {
    end = end.parent_path() / std::filesystem::read_symlink(end, ignored);
  }
  if (std::filesystem::is_symlink(end, ignored)) fail_usage("-o {}: its links go round", path.string());
  return end;
}

}  // namespace

PredictionFile::PredictionFile(const Path& path, bool overwrite)
    : path_(path), to_standard_output_(path == "-") {
  if (to_standard_output_) return;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail_usage("-o {}: it is a folder, expected the name of a CSV file", path.string());
  }
  if (std::filesystem::is_other(path, ignored)) {  // renaming would replace the device
    file_ = open_to_write(path);
    return;
  }
  target_ = end_of_links(path);
  const Path folder = target_.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    fail_usage("-o {}: there is no folder {}; make it, or choose another -o", path.string(), folder.string());
  }
  if (!overwrite && std::filesystem::exists(path, ignored)) {
    fail_usage("{} is there already; replace it with --overwrite, or choose another -o", path.string());
  }
  temporary_ = target_.string() + fmt::format(".{}.tmp", ::getpid());
  file_ = open_to_write(temporary_);
}

PredictionFile::~PredictionFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void PredictionFile::add(const std::string& text) {
  buffer_ += text;
  if (buffer_.size() >= kFlushBytes) flush();
}

void PredictionFile::flush() {
  if (to_standard_output_) {
    if (std::fwrite(buffer_.data(), 1, buffer_.size(), stdout) != buffer_.size() ||
        std::fflush(stdout) != 0) {
      fail("can't write the predictions to standard output: {}", system_message(errno));
    }
  } else {
    write_all(file_, std::as_bytes(std::span(buffer_)), path_);
  }
  buffer_.clear();
}

void PredictionFile::commit() {
  flush();
  if (temporary_.empty()) return;
  sync_file(file_, path_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail("can't create {}: {}", path_.string(), system_message(errno));
  }
  temporary_.clear();
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    out += c;
    if (c == '"') out += '"';
  }
  return out + '"';
}

}  // namespace troika

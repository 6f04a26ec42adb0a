#include "troika/train/predict_file.h"

#include <cerrno>
#include <cstdio>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr size_t kFlushBytes = 1 << 20;

void check_output(const Path& path, bool overwrite) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    fail_usage("-o {}: it is a folder, expected the name of a CSV file", path.string());
  }
  if (error == std::errc::too_many_symbolic_link_levels)
    fail_usage("-o {}: its links go round", path.string());
  if (fs::is_other(status)) return;  // a device is written to as it is
  const Path folder = end_of_links(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    fail_usage("-o {}: there is no folder {}; make it, or choose another -o", path.string(), folder.string());
  }
  if (!overwrite && fs::exists(status)) {
    fail_usage("{} is there already; replace it with --overwrite, or choose another -o", path.string());
  }
}

}  // namespace

PredictionFile::PredictionFile(const Path& path, bool overwrite) {
  if (path == "-") return;
  check_output(path, overwrite);
  file_.emplace(path);
}

void PredictionFile::add(const std::string& text) {
  buffer_ += text;
  if (buffer_.size() >= kFlushBytes) flush();
}

void PredictionFile::flush() {
  if (file_) {
    file_->write(buffer_);
  } else if (std::fwrite(buffer_.data(), 1, buffer_.size(), stdout) != buffer_.size() ||
             std::fflush(stdout) != 0) {
    fail("can't write the predictions to standard output: {}", system_message(errno));
  }
  buffer_.clear();
}

void PredictionFile::commit() {
  flush();
  if (file_) file_->commit();
}

}  // namespace troika

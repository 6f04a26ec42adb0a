#include "troika/data/reject_file.h"

#include <fmt/format.h>

#include "troika/base/text.h"
#include "troika/data/cell_text.h"

namespace troika {
namespace {

constexpr size_t kBufferBytes = 1 << 16, kFirstFew = 5;
constexpr size_t kTextBytes = 1 << 16;  // of a record's text

// As it is, so that it can be mended and packed; bytes that would spoil the report are written as \xNN.
std::string reported_text(std::string_view text) {
  const bool plain = is_utf8(text) && text.find('\0') == std::string_view::npos;
  if (!plain) return printable(text, kTextBytes);
  if (text.size() <= kTextBytes) return std::string(text);
  size_t cut = kTextBytes;
  while ((static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return std::string(text.substr(0, cut)) + "...";
}

}  // namespace

RejectFile::RejectFile(Path path) : path_(std::move(path)) {}

void RejectFile::append(const CsvBlock& block, const std::vector<Reject>& rejects, const std::string& file,
                        int64_t first_line) {
  for (const Reject& reject : rejects) {
    if (count_++ == 0) {
      file_ = open_to_write(path_);
      buffer_ = "file,line,byte,reason,text\n";
    }
    const std::string_view text = block.text().substr(reject.begin, reject.end - reject.begin);
    const int64_t line = first_line + reject.line;
    const uint64_t byte = block.offset + reject.begin;
    buffer_ += fmt::format("{},{},{},{},{}\n", csv_quoted(file), line, byte, csv_quoted(reject.reason),
                           csv_quoted(reported_text(text)));
    if (buffer_.size() >= kBufferBytes) flush();
    if (first_few_.size() < kFirstFew)
      first_few_.push_back({file, line, byte, reject.reason, printable(text, 80)});
  }
}

void RejectFile::flush() {
  write_all(file_, std::as_bytes(std::span(buffer_)), path_);
  buffer_.clear();
}

void RejectFile::close() {
  if (!file_) return;
  flush();
  sync_file(file_, path_);
  file_.close();
}

}  // namespace troika

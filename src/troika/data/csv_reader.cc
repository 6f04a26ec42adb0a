#include "troika/data/csv_reader.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {

size_t byte_order_mark(std::string_view text) { return text.substr(0, 3) == "\xEF\xBB\xBF" ? 3 : 0; }

std::vector<std::string> column_names(const std::vector<std::string>& header, const Path& path) {
  std::vector<std::string> names;
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < header.size(); ++i) {
    std::string name(trim(header[i]));
    if (name.empty()) name = fmt::format("column_{}", i + 1);
    const auto [at, fresh] = seen.emplace(name, i + 1);
    if (!fresh) {
      fail("{} has the column name \"{}\" twice, as columns {} and {}; give one of them another name",
           path.string(), printable(name, 60), at->second, i + 1);
    }
    names.push_back(std::move(name));
  }
  return names;
}

CsvHeader read_header(std::string_view text, bool whole, const CsvDialect& dialect, const Path& path,
                      size_t& header_end) {
  CsvHeader header;
  size_t at = 0;
  std::vector<Field> fields(64);
  while (at < text.size()) {
    const Record record = read_record(text, at, dialect, fields);
    if (record.fields > fields.size()) {
      fields.resize(record.fields);
      continue;
    }
    if (record.end == at) {  // a blank line
      ++header.line;
      at = record.next;
      continue;
    }
    if (record.problem != RecordProblem::none || (!whole && record.next == text.size())) {
      fail("{} line {}: the header has {}: {}", path.string(), header.line,
           record.problem == RecordProblem::bad_quote ? "a quote that is not closed at the end of its field"
                                                      : "no end within the limit",
           printable(text.substr(at, record.end - at), 80));
    }
    header.text = text.substr(at, record.end - at);
    if (!is_utf8(header.text) || header.text.find('\0') != std::string::npos) {
      fail(
          "{} line {}: the header isn't UTF-8 text: {}; if it is text in another encoding, convert it: iconv "
          "-f "
          "LATIN1 -t UTF-8 FILE > NEW",
          path.string(), header.line, printable(header.text, 80));
    }
    for (size_t i = 0; i < record.fields; ++i) header.names.push_back(field_text(text, fields[i]));
    header.next_line = header.line + record.newlines;
    header_end = record.next;
    return header;
  }
  if (text.empty()) fail("{} is empty; expected a header line and rows", path.string());
  fail("{} holds only blank lines; expected a header line and rows", path.string());
}

CsvReader::CsvReader(std::vector<Path> files, CsvDialect dialect, std::vector<std::string> names,
                     CsvLimits limits)
    : files_(std::move(files)), dialect_(dialect), names_(std::move(names)), limits_(limits) {}

void CsvReader::open_next_file() {
  const Path& path = files_[next_file_++];
  input_.emplace(path);
  CsvBlock block;
  size_t have = 0, want = std::max<size_t>(limits_.block_bytes, 4096), header_end = 0, start = 0;
  bool whole = false;
  // Grow until the header and one byte more are there.
  while (true) {
    have = fill(block, have, want);
    whole = have < want;
    start = byte_order_mark({block.bytes.data(), have});
    const std::string_view text(block.bytes.data() + start, have - start);
    size_t blank = 0;
    while (blank < text.size() && (text[blank] == '\n' || text[blank] == '\r')) ++blank;
    if (whole || want >= limits_.record_bytes || last_record_end(text, dialect_) > blank) break;
    want = std::min(want * 2, std::max(limits_.record_bytes, want));
  }
  block.size = have;
  // `text` without the mark, at the front of the block and with its padding.
  std::memmove(block.bytes.data(), block.bytes.data() + start, have - start);
  const CsvHeader header = read_header({block.bytes.data(), have - start}, whole, dialect_, path, header_end);
  const std::vector<std::string> names = column_names(header.names, path);
  if (names != names_) {
    size_t i = 0;
    while (i < std::min(names.size(), names_.size()) && names[i] == names_[i]) ++i;
    const auto name_at = [i](const std::vector<std::string>& all) {
      return i < all.size() ? fmt::format("\"{}\"", printable(all[i], 60)) : std::string("nothing");
    };
    fail("{} has another header than {}: column {} is {}, expected {}; pack files of one kind together",
         path.string(), files_.front().string(), i + 1, name_at(names), name_at(names_));
  }
  offset_ = start + header_end;
  header_lines_ = header.next_line;
  text_bytes_ += offset_;
  give_back(block, header_end, have - start);
}

// Fills the block up to `want` bytes, from what is pending and then from the file; returns how many there
// are.
size_t CsvReader::fill(CsvBlock& block, size_t have, size_t want) {
  if (block.bytes.size() < want + kBlockPadding) block.bytes.resize(want + kBlockPadding);
  const size_t taken = std::min(want - have, pending_.size() - pending_at_);
  if (taken > 0) std::memcpy(block.bytes.data() + have, pending_.data() + pending_at_, taken);
  pending_at_ += taken;
  have += taken;
  if (have < want) have += input_->read(std::span(block.bytes).subspan(have, want - have));
  return have;
}

void CsvReader::give_back(const CsvBlock& block, size_t from, size_t to) {
  const char* const bytes = block.bytes.data();
  if (pending_at_ == pending_.size()) {
    pending_.assign(bytes + from, bytes + to);
  } else {
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(pending_at_));
    pending_.insert(pending_.begin(), bytes + from, bytes + to);
  }
  pending_at_ = 0;
}

// A record beyond the limit: drop what is left of its line, so that the next one starts afresh.
void CsvReader::skip_line(CsvBlock& block) {
  CsvBlock rest;
  while (true) {
    const size_t have = fill(rest, 0, size_t{1} << 16);
    const std::string_view text(rest.bytes.data(), have);
    const size_t newline = text.find(dialect_.newline);
    const size_t used = newline == std::string_view::npos ? have : newline + 1;
    offset_ += used;
    text_bytes_ += used;
    give_back(rest, used, have);
    if (newline != std::string_view::npos || have == 0) break;
  }
  block.too_long = true;
}

bool CsvReader::next(CsvBlock& block) {
  while (true) {
    if (!input_) {
      if (next_file_ == files_.size()) return false;
      open_next_file();
    }
    block.too_long = false;
    size_t have = 0, want = limits_.block_bytes, end = 0;
    while (true) {
      have = fill(block, have, want);
      if (have < want) {
        end = have;  // the end of the file: whatever is left
        break;
      }
      const std::string_view text(block.bytes.data(), have);
      end = last_record_end(text, dialect_);
      if (end == 0 && have >= limits_.record_bytes) {
        // An open quote spoils only its own line; a line without an end is skipped.
        const size_t newline = text.find(dialect_.newline);
        end = newline == std::string_view::npos ? have : newline + 1;
        block.too_long = newline == std::string_view::npos;
      }
      if (end > 0) break;
      want = std::min(want * 2, std::max(limits_.record_bytes, want + 1));
    }
    if (have == 0) {
      done_files_bytes_ += input_->file_bytes();
      input_.reset();
      continue;
    }
    block.size = end;
    block.index = next_index_++;
    block.file = next_file_ - 1;
    block.offset = offset_;
    block.first_line = std::exchange(header_lines_, 0);
    offset_ += end;
    text_bytes_ += end;
    give_back(block, end, have);
    if (block.too_long) skip_line(block);
    return true;
  }
}

uint64_t CsvReader::file_position() const {
  return done_files_bytes_ + (input_ ? input_->file_position() : 0);
}

}  // namespace troika

#include "troika/data/csv_record.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace troika {
namespace {

static_assert(std::endian::native == std::endian::little, "the byte search below counts from the low end");

constexpr uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;

// High bit of every zero byte; exact for the lowest one, which is all that is asked.
uint64_t zero_bytes(uint64_t word) { return (word - kOnes) & ~word & kHighs; }

class FieldEnd {
 public:
  explicit FieldEnd(const CsvDialect& dialect)
      : delimiters_(kOnes * static_cast<unsigned char>(dialect.delimiter)),
        newlines_(kOnes * static_cast<unsigned char>(dialect.newline)) {}

  // First delimiter or line end in [at, end), or end; eight bytes at a time.
  size_t find(const char* data, size_t at, size_t end) const {
    while (at < end) {
      uint64_t word;
      std::memcpy(&word, data + at, sizeof word);
      const uint64_t found = zero_bytes(word ^ delimiters_) | zero_bytes(word ^ newlines_);
      if (found != 0) return std::min(end, at + static_cast<size_t>(std::countr_zero(found)) / 8);
      at += sizeof word;
    }
    return end;
  }

 private:
  uint64_t delimiters_, newlines_;
};

// The quote that closes the field whose text begins at `at`, or npos.
size_t closing_quote(std::string_view text, size_t at, bool& doubled) {
  while (true) {
    const size_t quote = text.find('"', at);
    if (quote == std::string_view::npos) return quote;
    if (quote + 1 >= text.size() || text[quote + 1] != '"') return quote;
    doubled = true;
    at = quote + 2;
  }
}

Record first_line_only(std::string_view block, size_t begin, const CsvDialect& dialect) {
  const size_t newline = std::min(block.find(dialect.newline, begin), block.size());
  size_t end = newline;
  if (dialect.newline == '\n' && end > begin && block[end - 1] == '\r') --end;
  return {end, std::min(newline + 1, block.size()), 1, 1, RecordProblem::bad_quote};
}

}  // namespace

Record read_record(std::string_view block, size_t begin, const CsvDialect& dialect, std::span<Field> fields) {
  const FieldEnd field_end(dialect);
  const char* const data = block.data();
  const size_t size = block.size();
  const bool carriage_returns = dialect.newline == '\n';
  Record record;
  record.newlines = 1;
  size_t at = begin;
  while (true) {
    size_t from = at, to, stop;
    bool doubled = false;
    if (at < size && data[at] == '"') {
      from = at + 1;
      to = closing_quote(block, from, doubled);
      if (to == std::string_view::npos) return first_line_only(block, begin, dialect);
      record.newlines += std::count(data + from, data + to, dialect.newline);
      record.end = stop = to + 1;
      if (carriage_returns && stop < size && data[stop] == '\r' &&
          (stop + 1 == size || data[stop + 1] == '\n')) {
        ++stop;
      }
      if (stop < size && data[stop] != dialect.delimiter && data[stop] != dialect.newline) {
        return first_line_only(block, begin, dialect);
      }
    } else {
      to = stop = field_end.find(data, at, size);
      if (carriage_returns && (stop == size || data[stop] == '\n') && to > at && data[to - 1] == '\r') --to;
      record.end = to;
    }
    if (record.fields < fields.size()) {
      fields[record.fields] = {static_cast<uint32_t>(from), static_cast<uint32_t>(to - from) & 0x7FFFFFFF,
                               doubled};
    }
    ++record.fields;
    if (stop >= size || data[stop] == dialect.newline) {
      record.next = std::min(stop + 1, size);
      return record;
    }
    at = stop + 1;
  }
}

size_t last_record_end(std::string_view text, const CsvDialect& dialect) {
  size_t last = 0, plain = 0;  // text[plain, ...) lies outside quotes
  while (true) {
    size_t quote = text.find('"', plain);
    while (quote != std::string_view::npos && quote > 0 && text[quote - 1] != dialect.delimiter &&
           text[quote - 1] != dialect.newline) {
      quote = text.find('"', quote + 1);
    }
    const std::string_view outside =
        text.substr(plain, quote == std::string_view::npos ? quote : quote - plain);
    const size_t newline = outside.rfind(dialect.newline);
    if (newline != std::string_view::npos) last = plain + newline + 1;
    if (quote == std::string_view::npos) return last;
    bool doubled = false;
    const size_t close = closing_quote(text, quote + 1, doubled);
    // What follows the quote decides, so it must be there: a second quote, a line end, or text that spoils
    // the line.
    if (close == std::string_view::npos || close + 1 == text.size()) return last;
    const bool carriage_return = dialect.newline == '\n' && text[close + 1] == '\r';
    if (carriage_return && close + 2 == text.size()) return last;
    const char after = carriage_return && text[close + 2] == '\n' ? '\n' : text[close + 1];
    if (after != dialect.delimiter && after != dialect.newline) {
      const size_t line_end = text.find(dialect.newline, last);
      if (line_end == std::string_view::npos) return last;
      plain = last = line_end + 1;
      continue;
    }
    plain = close + 1;
  }
}

void undouble_quotes(char* block, Field& field) {
  char* const begin = block + field.begin;
  char* to = begin;
  for (uint32_t i = 0; i < field.size; ++i) {
    *to++ = begin[i];
    if (begin[i] == '"') ++i;
  }
  field.size = static_cast<uint32_t>(to - begin) & 0x7FFFFFFF;
  field.doubled = 0;
}

std::string field_text(std::string_view block, const Field& field) {
  std::string text(block.substr(field.begin, field.size));
  if (field.doubled) {
    Field whole{0, field.size, 1};
    undouble_quotes(text.data(), whole);
    text.resize(whole.size);
  }
  return text;
}

}  // namespace troika

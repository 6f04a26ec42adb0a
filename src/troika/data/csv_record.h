// The grammar of a CSV record: where it ends and where its fields lie. A double quote is special only at the
// start of a field; inside quotes it is doubled; a quoted field may hold delimiters and line ends. A quote
// that is never closed, or closed in mid-field, spoils exactly one physical line: the first of its record;
// the next line is read afresh. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troika {

/// Bytes that must be readable behind a block's end (their content doesn't matter).
constexpr size_t kBlockPadding = 32;

struct CsvDialect {
  char delimiter = ',';
  char newline = '\n';  // '\r' for files without a single '\n'; before '\n' a '\r' is part of the line end
  bool operator==(const CsvDialect&) const = default;
};

/// A field within its block, without the surrounding quotes.
struct Field {
  uint32_t begin = 0;
  uint32_t size : 31 = 0;
  uint32_t doubled : 1 = 0;  // holds doubled quotes that stand for one each
};

enum class RecordProblem { none, bad_quote };

struct Record {
  size_t end = 0;        // of its text, without the line end
  size_t next = 0;       // where the next record begins
  size_t fields = 0;     // all of them, also those that `fields` had no room for
  int64_t newlines = 0;  // physical lines it spans
  RecordProblem problem = RecordProblem::none;
};

/// Reads the record at `begin` < block.size() (at most 2 GiB; kBlockPadding readable bytes follow). The block
/// must hold the record to its end, or the source's end: a quote still open there is never closed, and only
/// the first line of the record is taken.
Record read_record(std::string_view block, size_t begin, const CsvDialect& dialect, std::span<Field> fields);

/// End of the last whole record of `text`, which begins at the start of a record; 0 if there is none.
size_t last_record_end(std::string_view text, const CsvDialect& dialect);

/// Halves the doubled quotes of a field in place.
void undouble_quotes(char* block, Field& field);

/// The field's text, quotes halved.
std::string field_text(std::string_view block, const Field& field);

}  // namespace troika

#include "troika/data/csv_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "troika/base/text.h"

namespace troika {
namespace {

// A column of a batch is read at a stretch: enough rows to make that worth it, few enough to stay in the
// cache.
constexpr size_t kBatchRows = 256, kBatchFields = 16384;

// Whether a byte is NUL or not ASCII, eight at a time.
bool has_odd_bytes(std::string_view text) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;
  uint64_t odd = 0;
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof word);
    odd |= word | (word - kOnes);  // the high bit is set by a byte from 0x80 on, or by a zero
  }
  bool rest = false;
  for (; at < text.size(); ++at) rest |= text[at] <= 0;
  return (odd & kHighs) != 0 || rest;
}

bool has_digit(std::string_view text) { return text.find_first_of("0123456789") != std::string_view::npos; }

}  // namespace

bool stores_ints(CellReader reader) {
  return reader == CellReader::int_number || reader == CellReader::timestamp;
}

RowLayout::RowLayout(std::vector<CellReader> all) : readers(std::move(all)) {
  for (const CellReader reader : readers) {
    indices.push_back(reader == CellReader::skip ? -1
                      : stores_ints(reader)      ? int_columns++
                                                 : float_columns++);
  }
}

BlockParser::BlockParser(const RowLayout& layout, const CsvDialect& dialect, CsvLimits limits)
    : layout_(layout),
      dialect_(dialect),
      limits_(limits),
      columns_(layout.readers.size()),
      batch_rows_(std::clamp<size_t>(kBatchFields / columns_, 1, kBatchRows)),
      fields_(batch_rows_ * columns_),
      places_(batch_rows_),
      values_(batch_rows_) {}

std::string BlockParser::problem_with(std::string_view block, const Record& record, size_t begin) const {
  if (record.problem == RecordProblem::bad_quote) return "a quote that is not closed at the end of its field";
  if (record.fields != columns_) return fmt::format("{} fields, expected {}", record.fields, columns_);
  if (odd_bytes_) {
    const std::string_view text = block.substr(begin, record.end - begin);
    if (text.find('\0') != std::string_view::npos) return "a NUL byte";
    if (!is_utf8(text)) return "not UTF-8 text";
  }
  return "";
}

void BlockParser::parse(CsvBlock& block, Chunk& chunk) {
  chunk.rows = chunk.lines = 0;
  chunk.floats.clear();
  chunk.ints.clear();
  chunk.rejects.clear();
  chunk.columns.resize(columns_);
  for (ColumnChunk& column : chunk.columns) {
    BlockDictionary dictionary = std::move(column.dictionary);
    dictionary.clear();
    column = {};
    column.dictionary = std::move(dictionary);
  }
  const std::string_view text = block.text();
  if (block.too_long) {
    chunk.lines = 1;
    chunk.rejects.push_back(
        {0, text.size(), 0,
         fmt::format("longer than {}", human_bytes(static_cast<double>(limits_.record_bytes)))});
    return;
  }
  odd_bytes_ = has_odd_bytes(text);
  rows_ = 0;
  size_t at = 0;
  while (at < text.size()) {
    const Record record =
        read_record(text, at, dialect_, std::span(fields_).subspan(rows_ * columns_, columns_));
    // A blank line is a row only where a row can be an empty field.
    if (record.end != at || columns_ == 1) {
      std::string problem = problem_with(text, record, at);
      if (problem.empty()) {
        places_[rows_] = {at, record.end, chunk.lines};
        if (++rows_ == batch_rows_) parse_rows(block.bytes.data(), chunk);
      } else {
        chunk.rejects.push_back({at, record.end, chunk.lines, std::move(problem)});
      }
    }
    chunk.lines += record.newlines;
    at = record.next;
  }
  parse_rows(block.bytes.data(), chunk);
  // Those whose cells don't fit were found a batch later.
  if (!layout_.fixed.empty()) std::ranges::sort(chunk.rejects, {}, &Reject::begin);
  for (size_t i = 0; i < columns_; ++i) {
    ColumnChunk& column = chunk.columns[i];
    if (layout_.readers[i] != CellReader::skip)
      column.nulls = chunk.rows - column.moments.count - column.infinite;
  }
}

// The batch, column by column, into the next rows of the chunk.
void BlockParser::parse_rows(char* block, Chunk& chunk) {
  if (rows_ > 0 && !layout_.fixed.empty()) reject_misfits(block, chunk);
  if (rows_ == 0) return;
  for (Field& field : std::span(fields_).first(rows_ * columns_)) {
    if (field.doubled) undouble_quotes(block, field);
  }
  const auto before = static_cast<size_t>(chunk.rows);
  const auto float_columns = static_cast<size_t>(layout_.float_columns);
  const auto int_columns = static_cast<size_t>(layout_.int_columns);
  chunk.floats.resize((before + rows_) * float_columns);
  chunk.ints.resize((before + rows_) * int_columns);
  float* const floats = chunk.floats.data() + before * float_columns;
  int64_t* const ints = chunk.ints.data() + before * int_columns;
  fill_nulls(floats, ints);
  for (size_t column = 0; column < columns_; ++column) {
    ColumnChunk& out = chunk.columns[column];
    const int index = layout_.indices[column];
    switch (layout_.readers[column]) {
      case CellReader::float_number:
        parse_floats(block, column, out, floats + index);
        break;
      case CellReader::boolean:
        parse_booleans(block, column, out, floats + index);
        break;
      case CellReader::category:
        parse_categories(block, column, out, floats + index);
        break;
      case CellReader::int_number:
        parse_ints(block, column, out, ints + index);
        break;
      case CellReader::timestamp:
        parse_timestamps(block, column, out, ints + index);
        break;
      case CellReader::skip:
        break;
    }
  }
  chunk.rows += static_cast<int64_t>(rows_);
  rows_ = 0;
}

// A cell that the quick way doesn't know: blanks around it, a null word, or something the layout can't hold.
Cell BlockParser::read_odd_cell(std::string_view text, size_t row, size_t column, ColumnChunk& out) const {
  const Cell cell = read_cell(text);
  if (cell.kind == CellKind::null) return cell;
  out.kinds.add(cell.kind);
  CellKinds alone;
  alone.add(cell.kind);
  if (can_read(layout_.readers[column], alone)) return cell;
  if (!out.contradiction) out.contradiction = {places_[row].line, cell.kind, std::string(text.substr(0, 60))};
  return {};
}

void BlockParser::parse_floats(const char* block, size_t column, ColumnChunk& out, float* first) {
  size_t count = 0;
  for (size_t row = 0; row < rows_; ++row, first += layout_.float_columns) {
    *first = kNullFloat;
    const std::string_view text = cell(block, row, column);
    if (text.empty()) continue;
    Cell value = read_number(text);
    if (value.kind == CellKind::text) {
      value = read_odd_cell(text, row, column, out);
      if (value.kind == CellKind::null) continue;
    }
    out.kinds.add(value.kind);
    const auto stored = static_cast<float>(value.number);
    if (std::isinf(stored)) {
      if (has_digit(text)) {
        ++out.beyond_float;
        continue;
      }
      ++out.infinite;
    } else {
      values_[count++] = stored;
    }
    *first = stored;
  }
  out.moments.add(moments_of(std::span(values_).first(count)));
}

void BlockParser::parse_ints(const char* block, size_t column, ColumnChunk& out, int64_t* first) {
  size_t count = 0;
  for (size_t row = 0; row < rows_; ++row, first += layout_.int_columns) {
    *first = kNullInt;
    const std::string_view text = cell(block, row, column);
    if (text.empty()) continue;
    Cell value = read_number(text);
    if (value.kind == CellKind::text || value.kind == CellKind::real) {
      value = read_odd_cell(text, row, column, out);
      if (value.kind == CellKind::null) continue;
    }
    out.kinds.add(value.kind);
    *first = value.integer;
    values_[count++] = static_cast<double>(value.integer);
  }
  out.moments.add(moments_of(std::span(values_).first(count)));
}

void BlockParser::parse_booleans(const char* block, size_t column, ColumnChunk& out, float* first) {
  size_t count = 0;
  for (size_t row = 0; row < rows_; ++row, first += layout_.float_columns) {
    const std::string_view text = cell(block, row, column);
    const Cell value = text.empty() ? Cell{} : read_odd_cell(text, row, column, out);
    *first = value.kind == CellKind::null ? kNullFloat : static_cast<float>(value.number);
    if (value.kind != CellKind::null) values_[count++] = value.number;
  }
  out.moments.add(moments_of(std::span(values_).first(count)));
}

void BlockParser::parse_timestamps(const char* block, size_t column, ColumnChunk& out, int64_t* first) {
  size_t count = 0;
  for (size_t row = 0; row < rows_; ++row, first += layout_.int_columns) {
    *first = kNullInt;
    const std::string_view text = cell(block, row, column);
    if (text.empty()) continue;
    int64_t nanoseconds = 0;
    if (read_timestamp(text, nanoseconds)) {
      out.kinds.add(CellKind::timestamp);
    } else {
      const Cell value = read_odd_cell(text, row, column, out);
      if (value.kind == CellKind::null) continue;
      nanoseconds = value.integer;
    }
    *first = nanoseconds;
    values_[count++] = static_cast<double>(nanoseconds);
  }
  out.moments.add(moments_of(std::span(values_).first(count)));
}

void BlockParser::parse_categories(const char* block, size_t column, ColumnChunk& out, float* first) {
  int64_t count = 0;
  for (size_t row = 0; row < rows_; ++row, first += layout_.float_columns) {
    const std::string_view text = cell(block, row, column);
    *first = text.empty() ? kNullFloat : static_cast<float>(out.dictionary.code(text));
    count += text.empty() ? 0 : 1;
  }
  out.moments.count += count;
}

}  // namespace troika

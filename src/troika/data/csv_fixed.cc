// What a block's parser does when the columns are those of an existing dataset.
#include <fmt/format.h>

#include "troika/base/text.h"
#include "troika/data/csv_parse.h"

namespace troika {
namespace {

/// As read_cell, with the quick ways of the readers first.
CellKind quick_kind(std::string_view text, ColumnType type) {
  if (text.empty()) return CellKind::null;
  if (type == ColumnType::number || type == ColumnType::integer) {
    if (const Cell number = read_number(text); number.kind != CellKind::text) return number.kind;
  }
  int64_t nanoseconds = 0;
  if (type == ColumnType::timestamp && read_timestamp(text, nanoseconds)) return CellKind::timestamp;
  return read_cell(text).kind;
}

}  // namespace

/// Why the row can't be stored, or "".
std::string BlockParser::misfit_of(const char* block, size_t row) const {
  for (size_t i = 0; i < columns_; ++i) {
    if (layout_.readers[i] == CellReader::category || layout_.readers[i] == CellReader::skip) continue;
    const FixedColumn& column = layout_.fixed[i];
    const std::string_view text = cell(block, row, i);
    const CellKind kind = quick_kind(text, column.shape.type);
    if (fits(column.shape, kind)) continue;
    const bool wide = column.shape.type == ColumnType::integer && kind == CellKind::wide_integer;
    return fmt::format("\"{}\" in column \"{}\", which --like keeps as {}{}", printable(text, 40),
                       printable(column.name, 60), name_of(column.shape.type),
                       wide ? fmt::format(" up to {}", with_commas(kExactFloat)) : "");
  }
  return "";
}

// Before anything of the rows is counted, and before quotes are undoubled, so that their text is as it was.
void BlockParser::reject_misfits(const char* block, Chunk& chunk) {
  size_t kept = 0;
  for (size_t row = 0; row < rows_; ++row) {
    if (std::string misfit = misfit_of(block, row); !misfit.empty()) {
      const Place& place = places_[row];
      chunk.rejects.push_back({place.begin, place.end, place.line, std::move(misfit)});
      continue;
    }
    if (kept != row) {
      const auto first = fields_.begin() + static_cast<ptrdiff_t>(row * columns_);
      std::copy_n(first, columns_, fields_.begin() + static_cast<ptrdiff_t>(kept * columns_));
    }
    ++kept;
  }
  rows_ = kept;
}

void BlockParser::fill_nulls(float* floats, int64_t* ints) const {
  for (size_t row = 0; row < rows_; ++row) {
    for (const int index : layout_.null_floats) floats[index] = kNullFloat;
    for (const int index : layout_.null_ints) ints[index] = kNullInt;
    floats += layout_.float_columns;
    ints += layout_.int_columns;
  }
}

}  // namespace troika

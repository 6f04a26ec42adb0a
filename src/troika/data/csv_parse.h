// Turns a block of CSV records into rows of numbers, as they lie in a shard. What a block gives depends on
// its bytes and the layout alone. Belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troika/data/csv_reader.h"
#include "troika/data/csv_value.h"
#include "troika/data/dictionary.h"
#include "troika/data/moments.h"

namespace troika {

/// A column whose type was decided before its cells are read.
struct FixedColumn {
  std::string name;
  ColumnShape shape;
};

/// How the columns are read, and where in the two arrays each goes.
struct RowLayout {
  std::vector<CellReader> readers;
  std::vector<int> indices;  // within the floats or the ints; -1 for skip
  int float_columns = 0, int_columns = 0;
  // With the columns of an existing dataset only: a row with a cell of another type is rejected, and places
  // that no column of the file fills are null.
  std::vector<FixedColumn> fixed;  // one for each column, or none at all
  std::vector<int> null_floats, null_ints;
  explicit RowLayout(std::vector<CellReader> readers);
};

bool stores_ints(CellReader reader);

/// A record that isn't loaded. `line` counts from 0 at the block's first.
struct Reject {
  size_t begin = 0, end = 0;  // its text in the block
  int64_t line = 0;
  std::string reason;
};

/// A cell that the layout can't hold.
struct Contradiction {
  int64_t line = 0;
  CellKind kind = CellKind::text;
  std::string text;
};

struct ColumnChunk {
  int64_t nulls = 0;
  int64_t beyond_float = 0;  // finite, but too large for float32: stored as null
  int64_t infinite = 0;      // "inf" in the source: stored as it is, not in the moments
  CellKinds kinds;  // of the cells; for a category, that of its texts is found out when they are merged
  Moments moments;
  std::optional<Contradiction> contradiction;  // the first
  BlockDictionary dictionary;                  // category: the codes in `floats` are this block's own
};

struct Chunk {
  int64_t rows = 0;
  int64_t lines = 0;
  std::vector<float> floats;  // row-major, as in a shard
  std::vector<int64_t> ints;
  std::vector<ColumnChunk> columns;
  std::vector<Reject> rejects;
};

class BlockParser {
 public:
  BlockParser(const RowLayout& layout, const CsvDialect& dialect, CsvLimits limits);
  /// Overwrites `chunk`, whose texts refer to `block`. Quotes in the block are undoubled in place.
  void parse(CsvBlock& block, Chunk& chunk);

 private:
  std::string problem_with(std::string_view block, const Record& record, size_t begin) const;
  void parse_rows(char* block, Chunk& chunk);
  void reject_misfits(const char* block, Chunk& chunk);
  std::string misfit_of(const char* block, size_t row) const;
  void fill_nulls(float* floats, int64_t* ints) const;
  void parse_floats(const char* block, size_t column, ColumnChunk& out, float* first);
  void parse_booleans(const char* block, size_t column, ColumnChunk& out, float* first);
  void parse_categories(const char* block, size_t column, ColumnChunk& out, float* first);
  void parse_ints(const char* block, size_t column, ColumnChunk& out, int64_t* first);
  void parse_timestamps(const char* block, size_t column, ColumnChunk& out, int64_t* first);
  Cell read_odd_cell(std::string_view text, size_t row, size_t column, ColumnChunk& out) const;
  std::string_view cell(const char* block, size_t row, size_t column) const {
    const Field& field = fields_[row * columns_ + column];
    return {block + field.begin, field.size};
  }

  struct Place {
    size_t begin = 0, end = 0;  // of the record's text in the block
    int64_t line = 0;
  };

  const RowLayout& layout_;
  CsvDialect dialect_;
  CsvLimits limits_;
  size_t columns_;
  size_t batch_rows_;
  size_t rows_ = 0;             // in the batch
  std::vector<Field> fields_;   // of the batch, row by row
  std::vector<Place> places_;   // of the batch's rows
  std::vector<double> values_;  // of one column of the batch, without nulls
  bool odd_bytes_ = false;      // the block has bytes that need a look: NUL or not ASCII
};

}  // namespace troika

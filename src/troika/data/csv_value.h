// What a cell's text says: nothing, a number, a truth value, a moment, or just text. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "troika/data/dataset.h"

namespace troika {

/// Whole numbers up to this size are exact in float32.
constexpr int64_t kExactFloat = int64_t{1} << 24;

/// In an int64 array this stands for null, so it is no value.
constexpr int64_t kNullInt = INT64_MIN;

/// Null in a float32 array.
constexpr float kNullFloat = std::numeric_limits<float>::quiet_NaN();

enum class CellKind : uint8_t { null, integer, wide_integer, real, boolean, timestamp, text };

struct Cell {
  CellKind kind = CellKind::null;
  double number = 0;    // integer, wide_integer, real; boolean as 0 and 1
  int64_t integer = 0;  // integer, wide_integer; timestamp in ns since 1970 UTC
};

/// The kind of a cell by itself. Null: empty, blanks only, or one of the null words (NA, N/A, NaN, null,
/// None, #N/A, #NA, <NA>, \N, -, --, ?, . in any case).
Cell read_cell(std::string_view text);

/// integer, wide_integer or real, else text: [+-]digits[.digits][e[+-]digits], "inf"; whole numbers with
/// leading zeros are text. No blanks around it. Real: as strtod, so that a float32 made of it is what numpy
/// makes.
Cell read_number(std::string_view text);

/// ISO 8601 with '-' or '/' between year, month and day: 2013-01-01, 2013-01-01T10:00, 2013-01-01
/// 10:00:00.25Z, +01:00; without a zone it is UTC. False if it isn't one, or lies beyond what int64 ns can
/// hold (1677 to 2262).
bool read_timestamp(std::string_view text, int64_t& nanoseconds);

/// "2013-01-01T10:00:00Z", with a fraction only if there is one.
std::string timestamp_text(int64_t nanoseconds);

/// The kinds of cell that a column holds, as a set; a column's type follows from it and from nothing else.
class CellKinds {
 public:
  void add(CellKind kind) { bits_ |= bit(kind); }
  void add(CellKinds other) { bits_ |= other.bits_; }
  bool has(CellKind kind) const { return (bits_ & bit(kind)) != 0; }
  bool only(std::initializer_list<CellKind> allowed) const {
    uint32_t rest = bits_;
    for (const CellKind kind : allowed) rest &= ~bit(kind);
    return rest == 0;
  }
  bool empty() const { return bits_ == 0; }

 private:
  static uint32_t bit(CellKind kind) { return kind == CellKind::null ? 0 : 1U << static_cast<int>(kind); }
  uint32_t bits_ = 0;
};

struct ColumnShape {
  ColumnType type = ColumnType::number;
  Storage storage = Storage::floats;
  bool operator==(const ColumnShape&) const = default;
};

/// Whole numbers are integers (int64 if one is beyond 2^24), with others among them numbers; any other
/// mixture is a category; a column without a value is a number.
ColumnShape shape_of(CellKinds kinds);

/// How a column's cells are turned into numbers. Integers that float32 holds and numbers are read alike.
enum class CellReader : uint8_t { float_number, int_number, boolean, timestamp, category, skip };

CellReader reader_of(ColumnShape shape);

/// Whether a column of that shape can hold the cell as it is, without becoming another one.
bool fits(ColumnShape shape, CellKind kind);

/// Whether `reader` can store every cell of those kinds.
bool can_read(CellReader reader, CellKinds kinds);

}  // namespace troika

#include <algorithm>
#include <bit>

#include "troika/base/error.h"
#include "troika/data/source.h"

namespace troika {
namespace {

// Bits [begin, end) of a word, 0 <= begin <= end <= 64.
uint64_t mask(int64_t begin, int64_t end) {
  const uint64_t below_end = end == 64 ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
  const uint64_t below_begin = begin == 64 ? ~uint64_t{0} : (uint64_t{1} << begin) - 1;
  return below_end & ~below_begin;
}

}  // namespace

RowSet::RowSet(int64_t rows, bool all)
    : rows_(rows), bits_(static_cast<size_t>((rows + 63) / 64), all ? ~uint64_t{0} : uint64_t{0}) {
  // Bits beyond the last row stay 0, so that count() needs no special case.
  if (all && rows % 64 != 0) bits_.back() = mask(0, rows % 64);
}

void RowSet::set(int64_t row, bool in) {
  TROIKA_ASSERT(row >= 0 && row < rows_, fmt::format("row {} of {}", row, rows_));
  uint64_t& word = bits_[static_cast<size_t>(row >> 6)];
  const uint64_t bit = uint64_t{1} << (row & 63);
  word = in ? word | bit : word & ~bit;
}

int64_t RowSet::count() const { return count({0, rows_}); }

int64_t RowSet::count(Range rows) const {
  TROIKA_ASSERT(rows.begin >= 0 && rows.end <= rows_,
                fmt::format("rows [{}, {}) of {}", rows.begin, rows.end, rows_));
  int64_t found = 0;
  for (int64_t row = rows.begin; row < rows.end;) {
    const int64_t word = row >> 6;
    const int64_t end = std::min(rows.end, (word + 1) << 6);
    found += std::popcount(bits_[static_cast<size_t>(word)] & mask(row & 63, end - (word << 6)));
    row = end;
  }
  return found;
}

}  // namespace troika

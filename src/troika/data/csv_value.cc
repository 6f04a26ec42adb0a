#include "troika/data/csv_value.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <limits>

#include "troika/base/text.h"

namespace troika {
namespace {

constexpr auto kPowersOfTen = [] {
  std::array<double, 23> powers{};  // 10^22 is the largest that a double holds exactly
  double power = 1;
  for (double& entry : powers) {
    entry = power;
    power *= 10;
  }
  return powers;
}();

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool equals_lowered(std::string_view text, std::string_view lowered) {
  if (text.size() != lowered.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
    if (c != lowered[i]) return false;
  }
  return true;
}

bool is_null_word(std::string_view text) {
  if (text.size() > 4) return false;
  for (const std::string_view word :
       {"na", "n/a", "nan", "null", "none", "#n/a", "#na", "<na>", "\\n", "-", "--", "?", "."}) {
    if (equals_lowered(text, word)) return true;
  }
  return false;
}

constexpr Cell kText{CellKind::text, 0, 0};

Cell whole_number(int64_t value) {
  const bool exact = value >= -kExactFloat && value <= kExactFloat;
  return {exact ? CellKind::integer : CellKind::wide_integer, static_cast<double>(value), value};
}

bool is_infinity(std::string_view text) {
  return equals_lowered(text, "inf") || equals_lowered(text, "infinity");
}

// Exponents, more than 18 digits, infinities: correct for all, quick for none.
Cell read_long_number(std::string_view text) {
  const bool negative = text.front() == '-';
  std::string_view digits = text;
  if (negative || text.front() == '+') digits.remove_prefix(1);
  if (is_infinity(digits)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return {CellKind::real, negative ? -infinity : infinity, 0};
  }
  if (digits.empty() || (!is_digit(digits.front()) && digits.front() != '.')) return kText;
  const char* const begin = negative ? text.data() : digits.data();
  const char* const end = text.data() + text.size();
  if (digits.find_first_not_of("0123456789") == std::string_view::npos) {
    if (digits.size() > 1 && digits.front() == '0') return kText;
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error == std::errc() && stop == end && value != kNullInt) return whole_number(value);
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (stop != end || error == std::errc::invalid_argument) return kText;
  // from_chars leaves the value alone when it is out of range; strtod gives infinity or zero.
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(begin, end).c_str(), nullptr);
  return {CellKind::real, value, 0};
}

// Days from 1970-01-01 to a date of the Gregorian calendar: years begin in March, so that the leap day is
// last.
int64_t days_from_civil(int64_t year, int month, int day) {
  year -= month <= 2;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

int days_in_month(int year, int month) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month == 2 && leap ? 29 : kDays[month - 1];
}

class Digits {
 public:
  explicit Digits(std::string_view text) : text_(text) {}
  bool done() const { return text_.empty(); }
  char peek() const { return text_.empty() ? '\0' : text_.front(); }
  bool skip(char c) {
    if (peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  // Between `least` and `most` digits.
  bool number(size_t least, size_t most, int& value, size_t* taken = nullptr) {
    size_t count = 0;
    value = 0;
    while (count < most && is_digit(peek())) {
      value = value * 10 + (text_.front() - '0');
      text_.remove_prefix(1);
      ++count;
    }
    if (taken != nullptr) *taken = count;
    return count >= least;
  }

 private:
  std::string_view text_;
};

// After the date: hours, minutes, seconds, fraction, zone. `nanoseconds` of the day, UTC.
bool read_time_of_day(Digits& text, int64_t& nanoseconds) {
  int hour = 0, minute = 0, second = 0, fraction = 0;
  size_t fraction_digits = 0;
  if (!text.number(1, 2, hour) || !text.skip(':') || !text.number(2, 2, minute)) return false;
  if (text.skip(':')) {
    if (!text.number(2, 2, second)) return false;
    if (text.skip('.') && !text.number(1, 9, fraction, &fraction_digits)) return false;
  }
  if (hour > 23 || minute > 59 || second > 59) return false;
  int64_t fraction_ns = fraction;
  for (size_t i = fraction_digits; i < 9; ++i) fraction_ns *= 10;
  int64_t seconds = hour * 3600 + minute * 60 + second;
  text.skip(' ');
  if (text.skip('Z') || text.skip('z')) {
  } else if (text.peek() == '+' || text.peek() == '-') {
    const int sign = text.skip('-') ? 1 : -1;
    text.skip('+');
    int zone_hours = 0, zone_minutes = 0;
    if (!text.number(2, 2, zone_hours)) return false;
    const bool colon = text.skip(':');
    if ((colon || !text.done()) && !text.number(2, 2, zone_minutes)) return false;
    if (zone_hours > 18 || zone_minutes > 59) return false;
    seconds += sign * (zone_hours * 3600 + zone_minutes * 60);
  }
  nanoseconds = seconds * 1'000'000'000 + fraction_ns;
  return text.done();
}

}  // namespace

Cell read_number(std::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  if (at == end) return kText;
  const bool negative = *at == '-';
  if (negative || *at == '+') ++at;
  const char* const first = at;
  uint64_t mantissa = 0;
  while (at < end && is_digit(*at)) mantissa = mantissa * 10 + static_cast<uint64_t>(*at++ - '0');
  const auto whole_digits = at - first;
  if (at == end) {
    if (whole_digits == 0 || whole_digits > 18) return read_long_number(text);
    if (whole_digits > 1 && *first == '0') return kText;
    const auto value = static_cast<int64_t>(mantissa);
    return whole_number(negative ? -value : value);
  }
  if (*at != '.') return read_long_number(text);
  const char* const fraction = ++at;
  while (at < end && is_digit(*at)) mantissa = mantissa * 10 + static_cast<uint64_t>(*at++ - '0');
  const auto fraction_digits = at - fraction;
  if (at != end || whole_digits + fraction_digits == 0 || whole_digits + fraction_digits > 18 ||
      mantissa > (uint64_t{1} << 53)) {
    return read_long_number(text);
  }
  // Both are exact, so one division rounds correctly.
  const double value = static_cast<double>(mantissa) / kPowersOfTen[static_cast<size_t>(fraction_digits)];
  return {CellKind::real, negative ? -value : value, 0};
}

bool read_timestamp(std::string_view text, int64_t& nanoseconds) {
  if (text.size() < 8 || !is_digit(text.front())) return false;
  Digits rest(text);
  int year = 0, month = 0, day = 0;
  if (!rest.number(4, 4, year)) return false;
  const char separator = rest.peek();
  if ((separator != '-' && separator != '/') || !rest.skip(separator)) return false;
  if (!rest.number(1, 2, month) || !rest.skip(separator) || !rest.number(1, 2, day)) return false;
  if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month)) return false;
  int64_t time_of_day = 0;
  if (!rest.done()) {
    if (!rest.skip('T') && !rest.skip(' ')) return false;
    if (!read_time_of_day(rest, time_of_day)) return false;
  }
  int64_t midnight = 0;
  return !__builtin_mul_overflow(days_from_civil(year, month, day), int64_t{86'400'000'000'000}, &midnight) &&
         !__builtin_add_overflow(midnight, time_of_day, &nanoseconds) && nanoseconds != kNullInt;
}

std::string timestamp_text(int64_t nanoseconds) {
  constexpr int64_t kSecond = 1'000'000'000;
  const std::chrono::nanoseconds time(nanoseconds);
  const auto days = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date{std::chrono::sys_days(days)};
  const int64_t rest = (time - days).count(), seconds = rest / kSecond;
  std::string text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                                 seconds / 3600, seconds / 60 % 60, seconds % 60);
  if (rest % kSecond != 0) {
    text += fmt::format(".{:09}", rest % kSecond);
    while (text.back() == '0') text.pop_back();
  }
  return text + 'Z';
}

Cell read_cell(std::string_view text) {
  text = trim(text);
  if (text.empty() || is_null_word(text)) return {};
  if (const Cell number = read_number(text); number.kind != CellKind::text) return number;
  if (equals_lowered(text, "true")) return {CellKind::boolean, 1, 1};
  if (equals_lowered(text, "false")) return {CellKind::boolean, 0, 0};
  Cell cell{CellKind::timestamp, 0, 0};
  return read_timestamp(text, cell.integer) ? cell : kText;
}

ColumnShape shape_of(CellKinds kinds) {
  using enum CellKind;
  if (kinds.empty()) return {ColumnType::number, Storage::floats};
  if (kinds.only({integer})) return {ColumnType::integer, Storage::floats};
  if (kinds.only({integer, wide_integer})) return {ColumnType::integer, Storage::ints};
  if (kinds.only({integer, wide_integer, real})) return {ColumnType::number, Storage::floats};
  if (kinds.only({boolean})) return {ColumnType::boolean, Storage::floats};
  if (kinds.only({timestamp})) return {ColumnType::timestamp, Storage::ints};
  return {ColumnType::category, Storage::floats};
}

CellReader reader_of(ColumnShape shape) {
  switch (shape.type) {
    case ColumnType::number:
      return CellReader::float_number;
    case ColumnType::integer:
      return shape.storage == Storage::floats ? CellReader::float_number : CellReader::int_number;
    case ColumnType::boolean:
      return CellReader::boolean;
    case ColumnType::category:
      return CellReader::category;
    case ColumnType::timestamp:
      return CellReader::timestamp;
  }
  return CellReader::skip;
}

bool fits(ColumnShape shape, CellKind kind) {
  using enum CellKind;
  CellKinds alone;
  alone.add(kind);
  switch (shape.type) {
    case ColumnType::number:
      return alone.only({integer, wide_integer, real});
    case ColumnType::integer:
      return shape.storage == Storage::ints ? alone.only({integer, wide_integer}) : alone.only({integer});
    case ColumnType::boolean:
      return alone.only({boolean});
    case ColumnType::timestamp:
      return alone.only({timestamp});
    case ColumnType::category:
      return true;
  }
  return false;
}

bool can_read(CellReader reader, CellKinds kinds) {
  using enum CellKind;
  switch (reader) {
    case CellReader::float_number:
      return kinds.only({integer, wide_integer, real});
    case CellReader::int_number:
      return kinds.only({integer, wide_integer});
    case CellReader::boolean:
      return kinds.only({boolean});
    case CellReader::timestamp:
      return kinds.only({timestamp});
    case CellReader::category:
    case CellReader::skip:
      return true;
  }
  return false;
}

}  // namespace troika

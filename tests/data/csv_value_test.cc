#include "troika/data/csv_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace troika {
namespace {

TEST(CsvValue, NullWordsInAnyCase) {
  for (const char* word : {"",     "  ",  "NA",   "na",   "N/A", "NaN", "nan", "NULL", "null", "None",
                           "#N/A", "#NA", "<NA>", "<na>", "\\N", "-",   "--",  "?",    ".",    " NA "}) {
    EXPECT_EQ(read_cell(word).kind, CellKind::null) << word;
  }
  for (const char* word : {"---", "N", "nothing", "..", "n.a.", "NAN1"}) {
    EXPECT_EQ(read_cell(word).kind, CellKind::text) << word;
  }
}

TEST(CsvValue, Numbers) {
  const auto real = [](const char* text) {
    const Cell cell = read_cell(text);
    EXPECT_EQ(cell.kind, CellKind::real) << text;
    return cell.number;
  };
  EXPECT_EQ(real("1e5"), 1e5);
  EXPECT_EQ(real(".5"), 0.5);
  EXPECT_EQ(real("5."), 5.0);
  EXPECT_EQ(real("+1.25"), 1.25);
  EXPECT_EQ(real("-0.1"), -0.1);
  EXPECT_EQ(real(" 3.5 "), 3.5);
  EXPECT_EQ(real("0.30000000000000004"), 0.30000000000000004);
  EXPECT_EQ(real("123456789012345678901234567890"), 123456789012345678901234567890.0);
  EXPECT_EQ(real("9223372036854775808"), 9223372036854775808.0);
  EXPECT_EQ(real("1.7976931348623157e308"), 1.7976931348623157e308);
  EXPECT_EQ(real("1e-400"), 0.0);
  EXPECT_TRUE(std::isinf(real("1e400")));
  EXPECT_EQ(real("-Infinity"), -std::numeric_limits<double>::infinity());
  for (const char* text : {"1,5", "0x1A", "1e", "e5", "+", "+-1", "--1", "1.2.3", "1 2", "007", "-01",
                           "1_000", "$5", "infinit"}) {
    EXPECT_EQ(read_cell(text).kind, CellKind::text) << text;
  }
}

TEST(CsvValue, IntegersKeepTheirSize) {
  const auto kind = [](const char* text) { return read_cell(text).kind; };
  EXPECT_EQ(kind("0"), CellKind::integer);
  EXPECT_EQ(kind("+7"), CellKind::integer);
  EXPECT_EQ(kind("-200"), CellKind::integer);
  EXPECT_EQ(kind("16777216"), CellKind::integer);
  EXPECT_EQ(kind("16777217"), CellKind::wide_integer);
  EXPECT_EQ(kind("-16777217"), CellKind::wide_integer);
  EXPECT_EQ(read_cell("9223372036854775807").integer, INT64_MAX);
  EXPECT_EQ(read_cell("-9223372036854775807").integer, -INT64_MAX);
  // The smallest int64 stands for null in the array, so it can't be a value.
  EXPECT_EQ(kind("-9223372036854775808"), CellKind::real);
}

TEST(CsvValue, DecimalsAreTheNearestDouble) {
  uint64_t state = 12345;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const auto whole = static_cast<int64_t>(state >> (20 + state % 40));
    const std::string digits = std::to_string(whole);
    const size_t point = (state >> 8) % (digits.size() + 1);
    const std::string text = "-" + digits.substr(0, point) + "." + digits.substr(point);
    if (text == "-.") continue;
    ASSERT_EQ(read_cell(text).number, std::strtod(text.c_str(), nullptr)) << text;
  }
}

TEST(CsvValue, Timestamps) {
  const auto shown = [](const char* text) {
    int64_t nanoseconds = 0;
    return read_timestamp(text, nanoseconds) ? timestamp_text(nanoseconds) : std::string("none");
  };
  EXPECT_EQ(shown("1970-01-01"), "1970-01-01T00:00:00Z");
  EXPECT_EQ(shown("2013-01-01T10:00:00Z"), "2013-01-01T10:00:00Z");
  EXPECT_EQ(shown("2013-01-01 10:00:00"), "2013-01-01T10:00:00Z");
  EXPECT_EQ(shown("2013/1/2 9:05"), "2013-01-02T09:05:00Z");
  EXPECT_EQ(shown("2013-01-01T10:00:00+02:00"), "2013-01-01T08:00:00Z");
  EXPECT_EQ(shown("2013-01-01T23:30:00-0130"), "2013-01-02T01:00:00Z");
  EXPECT_EQ(shown("2013-01-01T23:30:00.25 +01"), "2013-01-01T22:30:00.25Z");
  EXPECT_EQ(shown("1969-12-31T23:59:59.999999999"), "1969-12-31T23:59:59.999999999Z");
  EXPECT_EQ(shown("2000-02-29"), "2000-02-29T00:00:00Z");
  EXPECT_EQ(shown("1677-09-22"), "1677-09-22T00:00:00Z");
  EXPECT_EQ(shown("2262-04-11"), "2262-04-11T00:00:00Z");
  for (const char* text :
       {"1900-02-29", "2013-13-01", "2013-04-31", "2013-01-01T24:00:00", "2013-01-01T10:60", "2013-01/01",
        "2013-01-01T", "2013-01-01X10:00", "9999-12-31", "1600-01-01", "20130101", "13-01-01",
        "2013-01-01T10:00:00.1234567890", "2013-01-01T10:00Zz", "2013-01-01 10:00:00+1"}) {
    EXPECT_EQ(shown(text), "none") << text;
  }
}

TEST(CsvValue, EveryDayOfFourCenturiesComesBack) {
  for (int64_t day = -100'000; day < 100'000; ++day) {
    const int64_t nanoseconds = day * 86'400'000'000'000;
    int64_t back = 0;
    ASSERT_TRUE(read_timestamp(timestamp_text(nanoseconds), back));
    ASSERT_EQ(back, nanoseconds);
  }
}

TEST(CsvValue, ATypeFollowsFromTheKinds) {
  using enum CellKind;
  const auto type = [](std::initializer_list<CellKind> kinds) {
    CellKinds all;
    for (const CellKind kind : kinds) all.add(kind);
    return shape_of(all);
  };
  EXPECT_EQ(type({}), (ColumnShape{ColumnType::number, Storage::floats}));
  EXPECT_EQ(type({null, integer}), (ColumnShape{ColumnType::integer, Storage::floats}));
  EXPECT_EQ(type({integer, wide_integer}), (ColumnShape{ColumnType::integer, Storage::ints}));
  EXPECT_EQ(type({integer, wide_integer, real}), (ColumnShape{ColumnType::number, Storage::floats}));
  EXPECT_EQ(type({boolean}), (ColumnShape{ColumnType::boolean, Storage::floats}));
  EXPECT_EQ(type({boolean, integer}), (ColumnShape{ColumnType::category, Storage::floats}));
  EXPECT_EQ(type({timestamp}), (ColumnShape{ColumnType::timestamp, Storage::ints}));
  EXPECT_EQ(type({timestamp, real}), (ColumnShape{ColumnType::category, Storage::floats}));
  EXPECT_EQ(type({text}), (ColumnShape{ColumnType::category, Storage::floats}));
}

}  // namespace
}  // namespace troika

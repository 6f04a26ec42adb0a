#include "troika/data/csv_record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "data/packing.h"
#include "troika/base/random.h"
#include "troika/data/csv_parse.h"

namespace troika {
namespace {

// Records as text: fields in brackets; a problem and its line instead.
std::string records(const std::string& text, CsvDialect dialect = {}) {
  const std::string padded = text + std::string(kBlockPadding, '#');
  const std::string_view block(padded.data(), text.size());
  std::string out;
  std::vector<Field> fields(16);
  for (size_t at = 0; at < block.size();) {
    const Record record = read_record(block, at, dialect, fields);
    EXPECT_GT(record.next, at);
    if (record.problem == RecordProblem::none) {
      for (size_t i = 0; i < record.fields; ++i) out += "[" + field_text(block, fields[i]) + "]";
    } else {
      out += "bad{";
      out += std::string(block.substr(at, record.end - at)) + "}";
    }
    out += ";";
    at = record.next;
  }
  return out;
}

TEST(CsvRecord, PlainFields) {
  EXPECT_EQ(records("a,b\nc,d\n"), "[a][b];[c][d];");
  EXPECT_EQ(records("a,b\nc,d"), "[a][b];[c][d];");
  EXPECT_EQ(records(",\n,,"), "[][];[][][];");
  EXPECT_EQ(records("\n\na\n"), "[];[];[a];");
  EXPECT_EQ(records("a long field with more than eight bytes,and another one\n"),
            "[a long field with more than eight bytes][and another one];");
}

TEST(CsvRecord, LineEnds) {
  EXPECT_EQ(records("a,b\r\nc,d\r\n"), "[a][b];[c][d];");
  EXPECT_EQ(records("a,\"b\"\r\nc,d\r"), "[a][b];[c][d];");
  EXPECT_EQ(records("a\rb\n"), "[a\rb];");
  EXPECT_EQ(records("a,b\rc,d\r", {',', '\r'}), "[a][b];[c][d];");
}

TEST(CsvRecord, Quotes) {
  EXPECT_EQ(records("\"a,b\",\"c\nd\"\n"), "[a,b][c\nd];");
  EXPECT_EQ(records("\"say \"\"hi\"\"\",\"\"\n"), "[say \"hi\"][];");
  EXPECT_EQ(records("\"\"\"\"\n"), "[\"];");
  EXPECT_EQ(records("5\" pipe,a\"b\"c\n"), "[5\" pipe][a\"b\"c];");  // no quote at the start of a field
  EXPECT_EQ(records("a;\"b;c\"\n", {';', '\n'}), "[a][b;c];");
}

TEST(CsvRecord, AQuoteThatGoesWrongSpoilsOneLine) {
  EXPECT_EQ(records("\"a\"b,c\nd,e\n"), "bad{\"a\"b,c};[d][e];");
  EXPECT_EQ(records("1,\"open\n2,x\n3,y\n"), "bad{1,\"open};[2][x];[3][y];");
  EXPECT_EQ(records("1,\"open\n2,\"x\"\n"), "bad{1,\"open};[2][x];");
  EXPECT_EQ(records("\""), "bad{\"};");
}

TEST(CsvRecord, LastRecordEnd) {
  const auto end = [](std::string_view text) { return last_record_end(text, {}); };
  EXPECT_EQ(end("a,b\nc,d"), 4U);
  EXPECT_EQ(end("a,b"), 0U);
  EXPECT_EQ(end("a\n\"b\nc"), 2U);
  EXPECT_EQ(end("a\n\"b\nc\"\n"), 8U);
  EXPECT_EQ(end("a\n\"b\nc\""), 2U);      // the quote may be doubled
  EXPECT_EQ(end("a\n\"b\nc\"\"\n"), 2U);  // it is
  EXPECT_EQ(end("a\n\"b\nc\"x\nd"), 9U);  // a spoilt line, then c"x, then d without an end
}

// Random text of the letters that matter, most of it broken CSV.
std::string random_csv(uint64_t key, size_t size) {
  constexpr std::string_view kLetters = "\"\"\",,,\n\n\r1a \"";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text += kLetters[static_cast<size_t>(uniform(key, i) * static_cast<double>(kLetters.size()))];
  }
  return text;
}

// What the reader and the parser make of a file that is cut into blocks of that size.
std::string parsed(const Path& path, size_t block_bytes, const std::vector<std::string>& names) {
  CsvReader reader({path}, {}, names, {.block_bytes = block_bytes});
  const RowLayout layout(std::vector<CellReader>(names.size(), CellReader::category));
  BlockParser parser(layout, {}, {});
  CsvBlock block;
  Chunk chunk;
  std::string out;
  int64_t line = 0;
  uint64_t next = 0;
  while (reader.next(block)) {
    if (block.first_line > 0) {
      line = block.first_line;
    } else {
      EXPECT_EQ(block.offset, next);
    }
    next = block.offset + block.size;
    const std::string raw(block.text());
    parser.parse(block, chunk);
    for (const Reject& one : chunk.rejects) {
      out += fmt::format("{} {} {} {}\n", line + one.line, block.offset + one.begin, one.reason,
                         raw.substr(one.begin, one.end - one.begin));
    }
    line += chunk.lines;
  }
  return out + std::to_string(line);
}

std::string loaded(const Path& path, size_t block_bytes, const std::vector<std::string>& names) {
  CsvReader reader({path}, {}, names, {.block_bytes = block_bytes});
  const RowLayout layout(std::vector<CellReader>(names.size(), CellReader::category));
  BlockParser parser(layout, {}, {});
  CsvBlock block;
  Chunk chunk;
  std::string out;
  while (reader.next(block)) {
    parser.parse(block, chunk);
    for (size_t i = 0; i < chunk.floats.size(); ++i) {
      const size_t column = i % names.size();
      const float code = chunk.floats[i];
      out += std::isnan(code)
                 ? "-"
                 : std::string(chunk.columns[column].dictionary.texts()[static_cast<size_t>(code)]);
      out += column + 1 == names.size() ? ";" : "|";
    }
  }
  return out;
}

TEST(CsvRecordProperty, BlocksOfAnySizeGiveTheSameRecords) {
  const TemporaryFolder folder;
  int64_t cases = 0;
  for (uint64_t key = 0; key < 400; ++key) {
    const size_t columns = 1 + key % 3;
    std::vector<std::string> names;
    std::string text;
    for (size_t i = 0; i < columns; ++i) {
      names.push_back(std::string(1, static_cast<char>('p' + i)));
      text += (i == 0 ? "" : ",") + names.back();
    }
    text += "\n" + random_csv(key, 1 + key * 7 % 300);
    const Path path = folder / "random.csv";
    write_file(path, text);
    const std::string whole = parsed(path, 1 << 20, names), whole_rows = loaded(path, 1 << 20, names);
    for (const size_t block_bytes : {1, 2, 3, 5, 7, 8, 13, 16, 31, 64}) {
      ASSERT_EQ(parsed(path, block_bytes, names), whole) << "key " << key << " block " << block_bytes;
      ASSERT_EQ(loaded(path, block_bytes, names), whole_rows) << "key " << key << " block " << block_bytes;
      ++cases;
    }
  }
  EXPECT_EQ(cases, 4000);
}

}  // namespace
}  // namespace troika

#include "troika/data/csv_sniff.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

constexpr size_t kHeadBytes = size_t{1} << 20;                 // of the beginning
constexpr size_t kProbeBytes = size_t{1} << 16, kProbes = 15;  // and further on, if the file isn't packed
constexpr int64_t kDialectRecords = 1000;

// Text with the padding that read_record asks for.
class Sample {
 public:
  Sample(CsvInput& input, size_t bytes) : bytes_(new char[bytes + kBlockPadding]) {
    size_ = input.read({bytes_.get(), bytes});
    whole_ = size_ < bytes;
    start_ = byte_order_mark({bytes_.get(), size_});
  }
  Sample(const FileHandle& file, uint64_t offset, size_t bytes, const Path& path)
      : bytes_(new char[bytes + kBlockPadding]), size_(bytes) {
    read_exactly(file, std::as_writable_bytes(std::span(bytes_.get(), bytes)), offset, path);
  }
  std::string_view text() const { return {bytes_.get() + start_, size_ - start_}; }
  bool whole() const { return whole_; }

 private:
  std::unique_ptr<char[]> bytes_;  // not cleared first: most files are far smaller
  size_t size_ = 0, start_ = 0;
  bool whole_ = false;
};

struct Shape {
  char delimiter;
  size_t header_fields = 0;
  size_t usual_fields = 0;  // most records have that many
  double usual_share = 0, matching_share = 0;
};

Shape shape_with(std::string_view text, bool whole, char delimiter, char newline) {
  const CsvDialect dialect{delimiter, newline};
  std::map<size_t, int64_t> counts;
  int64_t records = 0;
  Shape shape{delimiter};
  for (size_t at = 0; at < text.size() && records < kDialectRecords;) {
    const Record record = read_record(text, at, dialect, {});
    if (!whole && record.next == text.size()) break;  // may go on behind the sample
    if (record.end != at && record.problem == RecordProblem::none) {
      if (shape.header_fields == 0)
        shape.header_fields = record.fields;
      else
        ++counts[record.fields], ++records;
    }
    at = record.next;
  }
  for (const auto& [fields, count] : counts) {
    const double part = static_cast<double>(count) / static_cast<double>(records);
    if (part > shape.usual_share) {
      shape.usual_share = part;
      shape.usual_fields = fields;
    }
    if (fields == shape.header_fields) shape.matching_share = part;
  }
  return shape;
}

CsvDialect sniff_dialect(const Sample& head, const Path& path) {
  const std::string_view text = head.text();
  CsvDialect dialect;
  if (text.find('\n') == std::string_view::npos && text.find('\r') != std::string_view::npos)
    dialect.newline = '\r';
  std::optional<Shape> best, titled;
  for (const char delimiter : {',', ';', '\t', '|'}) {
    const Shape shape = shape_with(text, head.whole(), delimiter, dialect.newline);
    if (shape.header_fields > 1 &&
        (!best || shape.matching_share > best->matching_share + 1e-9 ||
         (shape.matching_share > best->matching_share - 1e-9 && shape.header_fields > best->header_fields))) {
      best = shape;
    }
    if (shape.header_fields <= 1 && shape.usual_fields > 1 && shape.usual_share > 0.5) titled = shape;
  }
  if (titled && (!best || best->matching_share < 0.5)) {
    fail(
        "{}: the first line has one field, but the rows have {} (between \"{}\"); if there is a title above "
        "the line "
        "with the column names, remove it",
        path.string(), titled->usual_fields,
        titled->delimiter == '\t' ? "tab" : std::string(1, titled->delimiter));
  }
  // A comma in a single column of text is no delimiter if the rows don't agree with the header at all; then
  // they are rejected one by one, and that is said.
  if (best) dialect.delimiter = best->delimiter;
  return dialect;
}

// The records of a sample that have the right number of fields.
void look_at(std::string_view text, bool whole, const CsvDialect& dialect, Sniff& sniff) {
  std::vector<Field> fields(sniff.columns.size());
  sniff.sample_bytes += static_cast<int64_t>(text.size());
  for (size_t at = 0; at < text.size();) {
    const Record record = read_record(text, at, dialect, fields);
    if (!whole && record.next == text.size()) break;
    const size_t begin = at;
    at = record.next;
    if (record.problem != RecordProblem::none || record.fields != fields.size()) continue;
    if (record.end == begin && fields.size() > 1) continue;
    ++sniff.sample_rows;
    for (size_t i = 0; i < fields.size(); ++i) {
      SniffedColumn& column = sniff.columns[i];
      const CellKind kind = read_cell(text.substr(fields[i].begin, fields[i].size)).kind;
      column.kinds.add(kind);
      if (kind == CellKind::null)
        ++column.nulls;
      else if (column.example.empty())
        column.example = field_text(text, fields[i]).substr(0, 200);
    }
  }
}

// A first line is a header for certain if a cell of it fits no typed column under it. If none does that and
// one is a number or a date, it is taken for a row, which must not be lost.
void require_header(const CsvHeader& header, const Sniff& sniff, const Path& path) {
  bool data = false;
  for (size_t i = 0; i < header.names.size(); ++i) {
    const CellKind kind = read_cell(header.names[i]).kind;
    CellKinds kinds = sniff.columns[i].kinds;
    const bool typed = !kinds.empty() && shape_of(kinds).type != ColumnType::category;
    if (kind == CellKind::null) continue;
    kinds.add(kind);
    if (typed && shape_of(kinds).type == ColumnType::category) return;
    data = data || kind != CellKind::text;
  }
  if (data) {
    fail("{} has no header: its first line looks like data ({}); put a line with the column names above it",
         path.string(), printable(header.text, 80));
  }
}

}  // namespace

std::vector<std::string> Sniff::names() const {
  std::vector<std::string> names;
  for (const SniffedColumn& column : columns) names.push_back(column.name);
  return names;
}

Sniff sniff_csv(const Path& path) {
  CsvInput input(path);
  const Sample head(input, kHeadBytes);
  Sniff sniff;
  sniff.packing = input.packing();
  sniff.dialect = sniff_dialect(head, path);
  size_t header_end = 0;
  const CsvHeader header = read_header(head.text(), head.whole(), sniff.dialect, path, header_end);
  for (std::string& name : column_names(header.names, path))
    sniff.columns.push_back({std::move(name), {}, "", 0});
  const std::string body(head.text().substr(header_end));
  std::string padded = body + std::string(kBlockPadding, '\0');
  look_at({padded.data(), body.size()}, head.whole(), sniff.dialect, sniff);
  const uint64_t size = input.file_bytes();
  if (input.packing() == Packing::none && size > 2 * kHeadBytes) {
    const FileHandle file = open_to_read(path);
    for (size_t i = 1; i <= kProbes; ++i) {
      const uint64_t offset = kHeadBytes + (size - kHeadBytes - kProbeBytes) * i / kProbes;
      const Sample probe(file, offset, kProbeBytes, path);
      const std::string_view text = probe.text();
      const size_t newline = text.find(sniff.dialect.newline);
      if (newline == std::string_view::npos) continue;
      look_at(text.substr(newline + 1), i == kProbes, sniff.dialect, sniff);
    }
  }
  require_header(header, sniff, path);
  return sniff;
}

}  // namespace troika

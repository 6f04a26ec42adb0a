#include "troika/data/manifest.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"
#include "troika/data/npy.h"

namespace troika {
namespace {

using Json = nlohmann::json;

constexpr ColumnType kTypes[] = {ColumnType::number, ColumnType::integer, ColumnType::boolean,
                                 ColumnType::category, ColumnType::timestamp};

// Reads fields and says which one is missing or of the wrong kind, with its path: "columns[3].type".
class Reader {
 public:
  Reader(const Json& json, std::string where, const Path& path)
      : json_(json), where_(std::move(where)), path_(path) {}

  Reader at(const char* key) const {
    const std::string where = where_.empty() ? key : where_ + "." + key;
    if (!json_.is_object()) refuse("an object");
    const auto found = json_.find(key);
    if (found == json_.end())
      fail("{}: {} is missing; the manifest is damaged, pack again", path_.string(), where);
    return Reader(*found, where, path_);
  }
  std::vector<Reader> items() const {
    if (!json_.is_array()) refuse("a list");
    std::vector<Reader> items;
    for (size_t i = 0; i < json_.size(); ++i)
      items.emplace_back(json_[i], fmt::format("{}[{}]", where_, i), path_);
    return items;
  }
  int64_t whole(int64_t least, int64_t most) const {
    if (!json_.is_number_integer() ||
        (json_.is_number_unsigned() && json_.get<uint64_t>() > uint64_t{INT64_MAX}) ||
        json_.get<int64_t>() < least || json_.get<int64_t>() > most) {
      refuse(fmt::format("a whole number from {} to {}", least, most));
    }
    return json_.get<int64_t>();
  }
  int64_t count() const { return whole(0, int64_t{1} << 53); }
  double number() const {
    if (!json_.is_number()) refuse("a number");
    return json_.get<double>();
  }
  std::string text() const {
    if (!json_.is_string()) refuse("a text");
    return json_.get<std::string>();
  }
  uint64_t hash() const {
    const std::string digits = text();
    uint64_t value = 0;
    if (digits.size() != 16) refuse("16 hexadecimal digits");
    for (const char c : digits) {
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) refuse("16 hexadecimal digits");
      value = value * 16 + static_cast<uint64_t>(digit);
    }
    return value;
  }
  // A name within the folder, or "".
  std::string file_name() const {
    const std::string name = text();
    if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos ||
        name.starts_with('.')) {
      refuse("the name of a file in this folder");
    }
    return name;
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    const std::string got = json_.dump(-1, ' ', false, Json::error_handler_t::replace);
    fail("{}: {} is {}, expected {}; the manifest is damaged, pack again", path_.string(),
         where_.empty() ? "the whole" : where_, printable(got, 60), expected);
  }

 private:
  const Json& json_;
  std::string where_;
  const Path& path_;
};

std::string hex(uint64_t value) { return fmt::format("\"{:016x}\"", value); }
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON has no infinity or NaN; statistics are over finite values, so these come from overflow only.
std::string number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "0"; }

template <typename Items, typename Text>
std::string list(const Items& items, const Text& text, const char* separator) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += separator;
    out += text(items[i]);
  }
  return out + "]";
}

std::string column_text(const Column& column) {
  std::string text = fmt::format(
      "  {{\"name\": {}, \"type\": \"{}\", \"array\": \"{}\", \"index\": {}, \"nulls\": {}, \"min\": {}, "
      "\"max\": {}, "
      "\"mean\": {}, \"deviation\": {}",
      quoted(column.name), name_of(column.type), column.storage == Storage::floats ? "floats" : "ints",
      column.index, column.nulls, number(column.minimum), number(column.maximum), number(column.mean),
      number(column.deviation));
  if (column.type == ColumnType::category)
    text += ", \"categories\": " + list(column.categories, quoted, ", ");
  return text + "}";
}

std::string shard_text(const Shard& shard) {
  return fmt::format(
      "  {{\"rows\": {},\n   \"floats\": {}, \"floats_bytes\": {}, \"floats_checksums\": {},\n   \"ints\": "
      "{}, "
      "\"ints_bytes\": {}, \"ints_checksums\": {}}}",
      shard.rows, quoted(shard.floats_file), shard.floats_bytes, list(shard.floats_checksums, hex, ", "),
      quoted(shard.ints_file), shard.ints_bytes, list(shard.ints_checksums, hex, ", "));
}

Column read_column(const Reader& json, const Dataset& dataset) {
  Column column;
  column.name = json.at("name").text();
  const std::string type = json.at("type").text();
  bool known = false;
  for (const ColumnType candidate : kTypes) {
    if (type == name_of(candidate)) {
      column.type = candidate;
      known = true;
    }
  }
  if (!known) json.at("type").refuse("float, int, bool, category or timestamp");
  const std::string array = json.at("array").text();
  if (array != "floats" && array != "ints") json.at("array").refuse("floats or ints");
  column.storage = array == "floats" ? Storage::floats : Storage::ints;
  const int columns = column.storage == Storage::floats ? dataset.float_columns : dataset.int_columns;
  column.index = static_cast<int>(json.at("index").whole(0, columns - 1));
  column.nulls = json.at("nulls").whole(0, dataset.rows);
  column.minimum = json.at("min").number();
  column.maximum = json.at("max").number();
  column.mean = json.at("mean").number();
  column.deviation = json.at("deviation").number();
  if (column.type == ColumnType::category) {
    for (const Reader& item : json.at("categories").items()) column.categories.push_back(item.text());
  }
  return column;
}

void read_array(const Reader& json, const char* name, int64_t row_bytes, const Dataset& dataset, int64_t rows,
                std::string& file, int64_t& bytes, std::vector<uint64_t>& checksums) {
  const std::string key(name);
  file = json.at(name).file_name();
  bytes = json.at((key + "_bytes").c_str()).count();
  for (const Reader& item : json.at((key + "_checksums").c_str()).items()) checksums.push_back(item.hash());
  const bool there = row_bytes > 0;
  if (file.empty() == there) json.at(name).refuse(there ? "a file" : "no file, as no column lies there");
  int64_t expected = 0;
  if (there && (__builtin_mul_overflow(rows, row_bytes, &expected) ||
                __builtin_add_overflow(expected, int64_t{kNpyHeaderBytes}, &expected))) {
    json.at("rows").refuse("fewer rows");
  }
  if (bytes != expected) json.at((key + "_bytes").c_str()).refuse(std::to_string(expected));
  const int64_t blocks =
      expected / dataset.checksum_block_bytes + (expected % dataset.checksum_block_bytes != 0);
  if (static_cast<int64_t>(checksums.size()) != blocks) {
    json.at((key + "_checksums").c_str()).refuse(fmt::format("{} of them", blocks));
  }
}

void check_columns(const Dataset& dataset, const Path& path) {
  std::set<std::string> names;
  std::set<std::pair<Storage, int>> places;
  for (const Column& column : dataset.columns) {
    if (!names.insert(column.name).second)
      fail("{}: the column \"{}\" is there twice", path.string(), column.name);
    if (!places.insert({column.storage, column.index}).second) {
      fail("{}: two columns lie in one place: \"{}\" and another", path.string(), column.name);
    }
  }
  if (static_cast<int64_t>(places.size()) != int64_t{dataset.float_columns} + dataset.int_columns) {
    fail("{}: there are {} columns, expected {} in the two arrays", path.string(), places.size(),
         int64_t{dataset.float_columns} + dataset.int_columns);
  }
}

}  // namespace

std::string manifest_json(const Dataset& dataset) {
  return fmt::format(
      "{{\n\"format\": {},\n\"rows\": {},\n\"float_columns\": {},\n\"int_columns\": "
      "{},\n\"checksum_block_bytes\": "
      "{},\n\"rejected_rows\": {},\n\"source\": {{\"path\": {}, \"bytes\": {}, \"fingerprint\": "
      "{}}},\n\"left_out\": "
      "{},\n\"columns\": {},\n\"shards\": {}\n}}\n",
      kDatasetFormat, dataset.rows, dataset.float_columns, dataset.int_columns, dataset.checksum_block_bytes,
      dataset.rejected_rows, quoted(dataset.source_path), dataset.source_bytes,
      hex(dataset.source_fingerprint), list(dataset.left_out, quoted, ", "),
      list(dataset.columns, column_text, ",\n"), list(dataset.shards, shard_text, ",\n"));
}

Dataset parse_manifest(std::string_view text, const Path& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    fail("{} is no valid JSON ({}); the manifest is damaged, pack again", path.string(), error.what());
  }
  const Reader whole(json, "", path);
  Dataset dataset;
  const int64_t format = whole.at("format").count();
  if (format != kDatasetFormat) {
    fail(
        "{}: dataset format {}, expected {}; it was written by another version of Troika, pack again with "
        "this one",
        path.string(), format, kDatasetFormat);
  }
  dataset.fingerprint = hash64(text);
  dataset.rows = whole.at("rows").count();
  dataset.float_columns = static_cast<int>(whole.at("float_columns").whole(0, 1 << 28));
  dataset.int_columns = static_cast<int>(whole.at("int_columns").whole(0, 1 << 28));
  dataset.checksum_block_bytes = whole.at("checksum_block_bytes").whole(128, 1 << 30);
  dataset.rejected_rows = whole.at("rejected_rows").count();
  const Reader source = whole.at("source");
  dataset.source_path = source.at("path").text();
  dataset.source_bytes = static_cast<uint64_t>(source.at("bytes").count());
  dataset.source_fingerprint = source.at("fingerprint").hash();
  for (const Reader& item : whole.at("left_out").items()) dataset.left_out.push_back(item.text());
  for (const Reader& item : whole.at("columns").items())
    dataset.columns.push_back(read_column(item, dataset));
  check_columns(dataset, path);
  int64_t rows = 0;
  for (const Reader& item : whole.at("shards").items()) {
    Shard shard;
    shard.rows = item.at("rows").whole(0, dataset.rows - rows);
    rows += shard.rows;
    read_array(item, "floats", int64_t{4} * dataset.float_columns, dataset, shard.rows, shard.floats_file,
               shard.floats_bytes, shard.floats_checksums);
    read_array(item, "ints", int64_t{8} * dataset.int_columns, dataset, shard.rows, shard.ints_file,
               shard.ints_bytes, shard.ints_checksums);
    dataset.shards.push_back(std::move(shard));
  }
  if (rows != dataset.rows) {
    fail("{}: the shards hold {} rows, expected {}; the manifest is damaged, pack again", path.string(), rows,
         dataset.rows);
  }
  return dataset;
}

}  // namespace troika

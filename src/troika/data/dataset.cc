#include "troika/data/dataset.h"

#include <sys/stat.h>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"
#include "troika/data/manifest.h"
#include "troika/data/npy.h"

namespace troika {
namespace {

void check_file(const Dataset& dataset, const std::string& name, int64_t bytes, NpyType type, int64_t rows,
                int64_t columns) {
  if (name.empty()) return;
  const Path path = dataset.folder / name;
  const FileHandle file = open_to_read(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("can't look at {}", path.string());
  if (status.st_size != bytes) {
    fail("{} has {} bytes, expected {}: it was cut short or changed; pack again, or copy the dataset again",
         path.string(), static_cast<int64_t>(status.st_size), bytes);
  }
  std::string header(kNpyHeaderBytes, '\0');
  read_exactly(file, std::as_writable_bytes(std::span(header)), 0, path);
  if (header != npy_header(type, rows, columns)) {
    fail(
        "{} has another .npy header than the manifest says ({} rows of {} columns); pack again, or copy the "
        "dataset "
        "again",
        path.string(), rows, columns);
  }
}

void check_blocks(const Dataset& dataset, const std::string& name, int64_t bytes,
                  const std::vector<uint64_t>& checksums) {
  if (name.empty()) return;
  const Path path = dataset.folder / name;
  const FileHandle file = open_to_read(path);
  std::string block;
  for (size_t i = 0; i < checksums.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * dataset.checksum_block_bytes;
    const int64_t end = std::min(bytes, begin + dataset.checksum_block_bytes);
    block.resize(static_cast<size_t>(end - begin));
    read_exactly(file, std::as_writable_bytes(std::span(block)), static_cast<uint64_t>(begin), path);
    if (hash64(block) != checksums[i]) {
      fail(
          "{} block {} (bytes {} to {}): the checksum differs from the manifest's, so the data has changed "
          "since it "
          "was packed; pack again, or copy the dataset again",
          path.string(), i, begin, end - 1);
    }
  }
}

}  // namespace

std::string_view name_of(ColumnType type) {
  switch (type) {
    case ColumnType::number:
      return "float";
    case ColumnType::integer:
      return "int";
    case ColumnType::boolean:
      return "bool";
    case ColumnType::category:
      return "category";
    case ColumnType::timestamp:
      return "timestamp";
  }
  return "";
}

const Column& Dataset::column(std::string_view name) const {
  std::vector<std::string> names;
  for (const Column& column : columns) {
    if (column.name == name) return column;
    names.push_back(column.name);
  }
  std::string all;
  for (const std::string& known : names) {
    if (all.size() > 1000) {
      all += ", ...";
      break;
    }
    all += (all.empty() ? "" : ", ") + known;
  }
  fail_usage("{} has no column \"{}\"{}; it has {}", folder.string(), name, did_you_mean(name, names), all);
}

Dataset open_dataset(const Path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) {
    fail("there is no dataset {}; make one: troika pack FILE.csv -o {}", folder.string(), folder.string());
  }
  const Path path = folder / kManifestName;
  if (!std::filesystem::exists(path, error)) {
    fail("{} is no dataset: it has no {}; make one: troika pack FILE.csv -o DATASET", folder.string(),
         kManifestName);
  }
  Dataset dataset = parse_manifest(read_text(path), path);
  dataset.folder = folder;
  for (const Shard& shard : dataset.shards) {
    check_file(dataset, shard.floats_file, shard.floats_bytes, NpyType::float32, shard.rows,
               dataset.float_columns);
    check_file(dataset, shard.ints_file, shard.ints_bytes, NpyType::int64, shard.rows, dataset.int_columns);
  }
  return dataset;
}

void check_dataset(const Dataset& dataset) {
  for (const Shard& shard : dataset.shards) {
    check_blocks(dataset, shard.floats_file, shard.floats_bytes, shard.floats_checksums);
    check_blocks(dataset, shard.ints_file, shard.ints_bytes, shard.ints_checksums);
  }
}

}  // namespace troika

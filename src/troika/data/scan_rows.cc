#include <algorithm>
#include <cstring>

#include "troika/data/source.h"
#include "troika/data/source_shards.h"

namespace troika {
namespace {

constexpr int64_t kScanRows = 8192;
constexpr int64_t kScanBytes = int64_t{4} << 20;

// Reads the selected rows of `rows` (of one shard, the first of them row `first` of the dataset) to the end
// of `out`.
template <typename T>
void append(ShardReader& shards, int shard, Storage storage, Range rows, const RowSet& selected,
            int64_t first, std::vector<T>& read, std::vector<T>& out) {
  const auto columns = static_cast<size_t>(shards.row_bytes(storage)) / sizeof(T);
  read.resize(static_cast<size_t>(rows.size()) * columns);
  if (columns == 0) return;
  shards.read_rows(shard, storage, rows, std::as_writable_bytes(std::span(read)));
  for (int64_t row = 0; row < rows.size(); ++row) {
    if (!selected.contains(first + row)) continue;
    const T* const from = read.data() + static_cast<size_t>(row) * columns;
    out.insert(out.end(), from, from + columns);
  }
}

}  // namespace

void scan_rows(const Dataset& dataset, const RowSet& rows,
               const std::function<void(const RowBuffer&)>& visit) {
  ShardReader shards(dataset, ShardReader::How::sequential_reads);
  const int64_t chunk =
      std::clamp<int64_t>(kScanBytes / std::max<int64_t>(1, dataset.row_bytes()), 1, kScanRows);
  RowBuffer read, out;
  int64_t shard_begin = 0;
  for (size_t k = 0; k < dataset.shards.size(); ++k) {
    const int64_t shard_rows = dataset.shards[k].rows;
    for (int64_t at = 0; at < shard_rows; at += chunk) {
      const Range part{at, std::min(at + chunk, shard_rows)};
      const int64_t first = shard_begin + at;
      out.rows = rows.count({first, first + part.size()});
      if (out.rows == 0) continue;
      out.floats.clear();
      out.ints.clear();
      append(shards, static_cast<int>(k), Storage::floats, part, rows, first, read.floats, out.floats);
      append(shards, static_cast<int>(k), Storage::ints, part, rows, first, read.ints, out.ints);
      visit(out);
    }
    shard_begin += shard_rows;
  }
}

}  // namespace troika

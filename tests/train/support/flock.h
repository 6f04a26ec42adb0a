// A small dataset made by a formula, with every type of column, nulls included, for tests of training.
#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "troika/base/random.h"
#include "troika/data/dataset.h"
#include "troika/data/shard_writer.h"

namespace troika {

/// Columns: x (number, a tenth null), count (integer), flag (boolean), kind (3 categories, some null), when
/// (timestamp, an hour apart from 2013-01-01), big (integer beyond float32, stored as int64), empty (all
/// null), y = a function of the others with a little noise (number), y2 (number), good (boolean), sort (3
/// categories, learnable), one (1 category).
inline void write_flock(const Path& folder, int64_t rows, bool null_target = false) {
  enum { kX, kCount, kFlag, kKind, kEmpty, kY, kY2, kGood, kSort, kOne, kFloats };
  enum { kWhen, kBig, kInts };
  constexpr float kNull = std::numeric_limits<float>::quiet_NaN();
  constexpr int64_t kStart = 1356998400, kHour = 3600;
  std::filesystem::create_directories(folder);
  Dataset dataset;
  dataset.folder = folder;
  dataset.rows = rows;
  dataset.float_columns = kFloats;
  dataset.int_columns = kInts;
  dataset.checksum_block_bytes = 4096;
  const auto column = [](const char* name, ColumnType type, Storage storage, int index,
                         std::vector<std::string> categories = {}) {
    Column c;
    c.name = name;
    c.type = type;
    c.storage = storage;
    c.index = index;
    c.categories = std::move(categories);
    c.minimum = std::numeric_limits<double>::infinity();
    c.maximum = -c.minimum;
    return c;
  };
  using enum ColumnType;
  dataset.columns = {column("x", number, Storage::floats, kX),
                     column("count", integer, Storage::floats, kCount),
                     column("flag", boolean, Storage::floats, kFlag),
                     column("kind", category, Storage::floats, kKind, {"a", "b", "c"}),
                     column("when", timestamp, Storage::ints, kWhen),
                     column("big", integer, Storage::ints, kBig),
                     column("empty", number, Storage::floats, kEmpty),
                     column("y", number, Storage::floats, kY),
                     column("y2", number, Storage::floats, kY2),
                     column("good", boolean, Storage::floats, kGood),
                     column("sort", category, Storage::floats, kSort, {"low", "middle", "high"}),
                     column("one", category, Storage::floats, kOne, {"only"})};
  std::vector<float> floats(static_cast<size_t>(rows) * kFloats);
  std::vector<int64_t> ints(static_cast<size_t>(rows) * kInts);
  for (int64_t row = 0; row < rows; ++row) {
    const auto key = static_cast<uint64_t>(row);
    float* const f = &floats[static_cast<size_t>(row) * kFloats];
    const double x = 4 * uniform(1, key) - 2;
    f[kX] = uniform(2, key) < 0.1 ? kNull : static_cast<float>(x);
    f[kCount] = static_cast<float>(row % 7);
    f[kFlag] = uniform(3, key) < 0.5 ? 1 : 0;
    const int kind = static_cast<int>(4 * uniform(4, key));
    f[kKind] = kind == 3 ? kNull : static_cast<float>(kind);
    f[kEmpty] = kNull;
    const double y = 50 + 20 * (std::isnan(f[kX]) ? 0 : x) + 10 * f[kFlag] + 5 * kind + uniform(5, key);
    f[kY] = null_target || row % 50 == 49 ? kNull : static_cast<float>(y);
    f[kY2] = static_cast<float>(-0.001 * y);
    f[kGood] = y > 60 ? 1 : 0;
    f[kSort] = y < 45 ? 0 : y < 70 ? 1 : 2;
    f[kOne] = 0;
    ints[static_cast<size_t>(row) * kInts + kWhen] = (kStart + row * kHour) * 1'000'000'000;
    ints[static_cast<size_t>(row) * kInts + kBig] = 1'000'000'000'000 + row;
  }
  for (Column& c : dataset.columns) {
    double sum = 0, squares = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(row);
      const double value = c.storage == Storage::floats
                               ? floats[at * kFloats + static_cast<size_t>(c.index)]
                               : static_cast<double>(ints[at * kInts + static_cast<size_t>(c.index)]);
      if (std::isnan(value)) {
        ++c.nulls;
        continue;
      }
      c.minimum = std::min(c.minimum, value);
      c.maximum = std::max(c.maximum, value);
      sum += value;
      squares += value * value;
    }
    const auto n = static_cast<double>(rows - c.nulls);
    if (n == 0) c.minimum = c.maximum = 0;
    if (n > 0 && (c.type == number || c.type == integer || c.type == boolean)) {
      c.mean = sum / n;
      c.deviation = std::sqrt(std::max(0.0, squares / n - c.mean * c.mean));
    }
  }
  ShardWriter writer(folder, kFloats, kInts, 1 << 16, dataset.checksum_block_bytes);
  writer.append(rows, floats, ints);
  dataset.shards = writer.finish();
  std::ofstream(folder / "manifest.json") << manifest_json(dataset);
}

}  // namespace troika

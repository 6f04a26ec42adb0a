// BatchSource: any rows of the sample order, read with a stated and kept memory budget. Bytes, no torch.
//
// The order of an epoch is a pure function of (manifest, which rows, seed, epoch): blocks of consecutive rows
// are permuted, taken in groups that fit in memory, and the rows of a group are permuted. It doesn't depend
// on ranks, threads or the machine, so position p of epoch e is the same row everywhere, and a run resumes
// from one number.
//
// Threading: one source serves all rank threads; gather() may be called from any of them. Ranks of one group
// move through an epoch together (within one batch of each other).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "troika/base/split.h"
#include "troika/data/dataset.h"

namespace troika {

/// A set of rows of a dataset: one bit a row.
class RowSet {
 public:
  explicit RowSet(int64_t rows = 0, bool all = false);
  int64_t universe() const { return rows_; }
  bool contains(int64_t row) const { return (bits_[static_cast<size_t>(row >> 6)] >> (row & 63) & 1) != 0; }
  void set(int64_t row, bool in);
  int64_t count() const;
  int64_t count(Range rows) const;

 private:
  int64_t rows_;
  std::vector<uint64_t> bits_;
};

struct Split {
  RowSet train, validation, test;
  int64_t null_targets = 0;  // rows left out because their target is null
  double median_step = 0;    // of windows' series, as in SeriesMap
  std::string description;   // for people: "by time: train up to 2013-10-19, validation ..., test ..."
  int64_t items() const { return train.count() + validation.count() + test.count(); }
};

/// How to cut a dataset into train, validation and test; fractions of the rows with a target.
struct SplitOptions {
  /// order: of windows only, each series cut in the order of its rows, the later ones for validation and
  /// test.
  enum class By { random, time, series, order } by = By::random;
  double validation = 0.1, test = 0.1;
  std::string time_column =
      {};  // for By::time: the parts are whole later days (UTC) if there are enough of them
  std::vector<std::string> series_columns =
      {};  // for By::series: a series, as told apart by them, is in one part
  uint64_t seed =
      0;  // for By::random: membership is a pure function of (seed, row); By::series: (seed, series)
};

/// Rows whose target is null are in no part. Throws Error if a part that was asked for ends up empty.
Split split_rows(const Dataset& dataset, const std::vector<std::string>& targets,
                 const SplitOptions& options);

/// Rows as they lie in the dataset: row i at floats + i * float_columns, ints + i * int_columns. Items of
/// several rows lie one after the other, so `rows` is items x span.
struct RowBuffer {
  std::vector<float> floats;
  std::vector<int64_t> ints;
  int64_t rows = 0;
};

struct SourceOptions {
  uint64_t memory_budget_bytes = 0;  // 0: min(25 % of the memory limit, what is free)
  int readers = 1;                   // rank threads that call gather()
  bool shuffle = true;               // false: dataset order (evaluation)
  int64_t span = 1;  // rows of an item: the one in the row set, and those right after it (windows.h)
};

class BatchSource {
 public:
  /// Throws Error if one group doesn't fit in the budget, saying what would.
  static std::unique_ptr<BatchSource> open(const Dataset& dataset, const RowSet& rows, uint64_t seed,
                                           const SourceOptions& options);
  virtual ~BatchSource() = default;

  /// Items in an epoch.
  virtual int64_t size() const = 0;

  /// Copies the items at `positions` of epoch `epoch` into `out` (resized), in order. `reader` is this rank's
  /// number below SourceOptions::readers; a reader's positions only grow within an epoch, and epochs only
  /// grow.
  virtual void gather(int reader, int64_t epoch, Range positions, RowBuffer& out) = 0;

  /// The dataset's row numbers of those items (for tests and reports).
  virtual std::vector<int64_t> row_numbers(int64_t epoch, Range positions) const = 0;

  /// What it will hold at most, and how: "mapped, 12.3 MB" or "2 groups of ... read ahead, 84 MB".
  virtual std::string memory_plan() const = 0;
  virtual uint64_t planned_bytes() const = 0;
};

/// Calls `visit` with the rows of `rows` in dataset order, some thousands at a time, within a small fixed
/// memory.
void scan_rows(const Dataset& dataset, const RowSet& rows,
               const std::function<void(const RowBuffer&)>& visit);

}  // namespace troika

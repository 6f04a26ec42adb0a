// The pass over a dataset's rows that finds its series, and what else a split wants to know of each row.
// Threading: one scan in one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "troika/data/split_series.h"
#include "troika/data/windows.h"

namespace troika {

/// Row `row` of the dataset is row `index` of `rows`.
using RowVisitor = std::function<void(int64_t row, const RowBuffer& rows, int64_t index)>;

struct SeriesScan {
  SeriesMap map;
  std::vector<std::string> keys;  // per series, by SeriesColumns
  double largest_step = 0;        // that is no gap; as in the time column: nanoseconds or its unit
};

/// UsageError unless window, horizon and stride make sense; Error if the dataset has fewer rows than a
/// sample.
void check_windows(const Dataset& dataset, const WindowOptions& options);

/// Also calls `also` once for each row, in order.
SeriesScan scan_series(const Dataset& dataset, const WindowOptions& options, const RowVisitor& also);

/// The median of many steps in a fixed memory: exact if its 1/1024 of an octave holds one value, else within
/// it.
class StepHistogram {
 public:
  StepHistogram();
  void add(uint64_t step);
  double median() const;  // the lower one of two; 0 without steps

 private:
  struct Bucket {
    int64_t count = 0;
    uint64_t lowest = 0, highest = 0;
  };
  std::vector<Bucket> buckets_;
  int64_t count_ = 0;
};

}  // namespace troika

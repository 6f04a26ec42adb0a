// Windows over series: a sample is `window` consecutive rows that the model sees and the `horizon` rows after
// them whose targets it predicts. A window is only its first row's number; its rows are never stored a second
// time.
//
//   series a | r0 r1 r2 r3 r4 | gap | r7 r8 r9 ...      window 2, horizon 1, stride 1: windows start at r0,
//   r1, r2, r7, ...
//
// Threading: values and pure functions; thread-safe as such.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/data/source.h"

namespace troika {

struct WindowOptions {
  int64_t window = 0;   // rows that the model sees; 0: no windows, every row is a sample of its own
  int64_t horizon = 1;  // rows after them to predict; 0: the targets of the window's own last row
  int64_t stride = 1;   // rows between the starts of two windows
  std::vector<std::string> series;  // columns whose values tell series apart; empty: one series
  std::string time;                 // rows of a series are in its order; "": in the dataset's, without gaps
  double max_gap =
      0;  // the largest step of time in a window, in seconds for timestamps; 0: 1.5 x the median step

  bool any() const { return window > 0; }
  /// Rows of a sample.
  int64_t span() const { return any() ? window + horizon : 1; }
  /// Rows of a sample whose targets are predicted.
  int64_t steps_ahead() const { return any() && horizon > 0 ? horizon : 1; }
  /// The first of them, within the sample.
  int64_t first_step_ahead() const { return any() ? span() - steps_ahead() : 0; }
  bool operator==(const WindowOptions&) const = default;
};

/// Consecutive rows of one series without a gap of time.
struct Segment {
  Range rows;
  int64_t series = 0;  // counted from 0 in order of appearance
};

/// A dataset as series.
struct SeriesMap {
  std::vector<Segment> segments;  // in row order
  int64_t series = 1;
  int64_t gaps = 0;        // places where a series goes on after a gap
  int64_t repeated = 0;    // places where a series' time stands still; counted as gaps too
  double median_step = 0;  // seconds or the column's unit; 0 without a time column
};

/// One pass (two if times are so uneven that gaps can't be told before the median is known), in a fixed
/// memory beside segments and series; the median is exact for even times, else within 0.1 %. Values of series
/// columns are compared exactly, and null is one. Throws Error naming the first row that is out of place (and
/// its time and the one before): a series that comes back after another one, a time that goes backwards or is
/// null; and what to do. Throws UsageError for columns that can't be what they are named for.
SeriesMap find_series(const Dataset& dataset, const WindowOptions& options);

/// Like split_rows, for windows: the parts hold the windows' first rows. No row is in windows of two parts:
/// by time (of `windows.time`; cuts as for rows) a window belongs to the part that holds all its rows, by
/// series (`split.series_columns`, some of windows.series; empty: all of them) all windows of a series are in
/// one part, in order each series is cut at its own rows, and at random is refused unless windows don't
/// overlap (stride >= span). Windows with a null target among the rows to predict are in no part, and are
/// counted in null_targets. The description says how many windows each part has, and how many fell out and
/// why. Throws Error or UsageError if a part that was asked for ends up empty.
Split split_windows(const Dataset& dataset, const std::vector<std::string>& targets,
                    const SplitOptions& split, const WindowOptions& windows);

/// Every row of the samples that start at `starts`.
RowSet covered_rows(const RowSet& starts, int64_t span);

}  // namespace troika

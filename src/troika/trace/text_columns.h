// A trace cut into columns of text: which span each column of a lane shows. Pure; thread-safe.
#pragma once

#include <vector>

#include "troika/trace/lanes.h"

namespace troika {

/// How time becomes columns.
struct ColumnScale {
  double per_second = 1;
  int columns = 0;         // of the whole trace
  bool occupancy = false;  // a column is more than an action: columns_of() shows proportions
};

/// The widest scale that helps, for blocks of `width` columns: labels up to `longest_label` wide fit in the
/// shortest action. Where all times are multiples of one, so are the columns. A trace whose shortest pass
/// needs more than `most_blocks` blocks for a column of its own is shown as occupancy, in one block.
ColumnScale column_scale(const std::vector<TraceLane>& lanes, double duration, int width, int longest_label,
                         int most_blocks);

/// For each column the index in lane.spans of what takes most of it, or -1 where nothing does. Of spans
/// within each other the inner one counts. With `occupancy`, of the kind (operation and stage) that takes
/// most.
std::vector<int> columns_of(const TraceLane& lane, const ColumnScale& scale);

}  // namespace troika

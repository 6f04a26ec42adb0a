// predict: a finished run and a dataset in, a CSV with the model's predictions out. Threading: one call at a
// time in a process; it computes on the calling thread with torch's intra-op threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/base/file.h"

namespace troika {

struct PredictOptions {
  Path run_dir;
  Path data;    // a dataset's folder
  Path output;  // the CSV; "-" for standard output
  std::string part =
      "all";  // "all", or a part of the run's own split of this dataset: "train", "validation", "test"
  bool overwrite = false;
  bool quiet = false;
};

struct PredictReport {
  int64_t predictions = 0;           // lines of the CSV
  std::vector<std::string> columns;  // its header
  double seconds = 0;
  double samples_per_s = 0;
  Path weights;  // the checkpoint that was used
  Path output;
};

/// One line for each row; with windows for each window, and in part "all" those whose future isn't in the
/// dataset too, the last one of a series among them. Columns: `row` (of the dataset, from 0; of a window its
/// last one), the series columns and the time (if the dataset has it), then for numbers the target (with
/// several steps ahead "target+1", "target+2" ...) in its own unit, for classes the likeliest one and
/// "target.p.CLASS" for each (of more than 32 classes only the likeliest one's, "target.p"). The file is
/// there whole or not at all. Throws UsageError if the dataset's columns or dictionaries don't fit the run's,
/// or if the output is there already or is in no folder; Error if the run has no checkpoint or can't be read,
/// if the output can't be written, if a prediction is not finite, or if Ctrl-C came.
PredictReport predict(const PredictOptions& options);

}  // namespace troika

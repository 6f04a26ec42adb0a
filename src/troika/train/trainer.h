// train: a recipe in, a trained model in a run directory and a report out. Resumable at any step.
// Threading: one call at a time in a process; it makes its own rank threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "troika/trace/trace.h"
#include "troika/train/baseline.h"
#include "troika/train/metrics.h"
#include "troika/train/recipe.h"
#include "troika/train/trial.h"

namespace troika {

struct TrainOptions {
  Path run_dir;
  bool resume = false;
  bool overwrite = false;
  bool quiet = false;         // no progress
  TrialLimits trial;          // of ranks = "auto"
  bool record_trace = false;  // one step into TrainReport::trace
  /// Called on rank 0's thread after every step with its number (from 1) and loss; returning false stops the
  /// run as Ctrl-C does.
  std::function<bool(int64_t step, double loss)> on_step;
};

struct StageReport {
  std::vector<std::string> layers;
  int64_t parameters = 0;
  // Of a rank that has it, in its training steps: of those of the data axis the one that holds most.
  std::optional<int64_t> predicted_peak_bytes, peak_bytes;
};

/// Everything `train --json` says.
struct TrainReport {
  bool finished = false;     // false: stopped by Ctrl-C, can be resumed
  int64_t steps = 0;         // done in all
  int64_t weights_step = 0;  // of the weights that are reported and written: the best by validation, or last
  double train_loss = 0;     // mean over the last whole epoch, or over the one under way if there was none
  std::optional<double> validation_loss;
  std::optional<Metrics> validation, test;
  std::vector<Baseline> baselines;   // on the same rows
  double seconds_between_rows = 0;   // of windows' series; 0: unknown
  double samples_per_s = 0;          // training steps only, after warm-up
  double seconds = 0;                // the whole call
  double seconds_to_first_step = 0;  // from the call to the start of the first step
  uint64_t peak_rss_bytes = 0;
  Mesh mesh;
  int64_t micro_batches = 1;
  int64_t threads_per_rank = 1;
  std::vector<LayoutRate> tried;  // what `ranks = "auto"` measured; empty if it didn't
  std::string schedule = "none";  // of a pipeline
  std::optional<double> predicted_bubble_rate, measured_bubble_rate;
  std::vector<StageReport> stages;
  Trace trace;               // of one step after warm-up, if asked for, and of every pipeline
  int64_t traced_steps = 1;  // more: of the window that the step was in
  Trace lanes,
      simulated;  // a pipeline's: its first data rank's part, and what its passes alone would have given
  Path run_dir;
};

/// Throws Error and UsageError; nothing is left behind if it fails before its first checkpoint, and the last
/// checkpoint is kept if it fails later.
TrainReport train(const Recipe& recipe, const TrainOptions& options);

/// The object of `train --json` (interface.md), and a few lines for people.
std::string report_json(const TrainReport& report);
std::string report_text(const TrainReport& report);

}  // namespace troika

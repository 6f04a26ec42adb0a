// What a run says as it goes: the lines of run.jsonl, the same figures for TensorBoard, and the progress line
// with what the run waits for. Internal to train. Threading: belongs to rank 0's thread.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "troika/base/progress.h"
#include "troika/train/metrics.h"
#include "troika/train/run_dir.h"
#include "troika/train/tensorboard.h"
#include "troika/train/workload.h"

namespace troika::internal {

/// One step as rank 0 saw it.
struct LoggedStep {
  int64_t step = 0;  // from 1
  double loss = 0;
  int64_t samples = 0;
  double seconds = 0;         // of this step
  double total_seconds = 0;   // of the run so far
  double data_seconds = 0;    // of this step: reading and encoding
  double waited_seconds = 0;  // of this step: for other ranks
  double learning_rate = 0;
  double grad_norm = 0;
};

class RunLog {
 public:
  /// All must outlive it.
  RunLog(const Workload& work, RunDir& dir, EventsFile& events, Progress& progress, int64_t first_step);

  void step(const LoggedStep& step);

  /// After the evaluation of the validation rows at `step`.
  void validation(int64_t step, int64_t epoch, double loss, const Metrics& metrics);

  /// An evaluation under way: how many of the `what` rows are done.
  void evaluating(const std::string& what, int64_t step, int64_t done, int64_t total);

  /// Time that goes into neither steps nor the lines between them.
  void evaluated(double seconds) { pauses_[kEvaluation] += seconds; }
  void saved(double seconds) { pauses_[kCheckpoints] += seconds; }

  /// Puts on disk what a checkpoint refers to.
  void sync();

 private:
  enum Pause { kData, kRanks, kEvaluation, kCheckpoints, kPauses };

  std::string waiting();
  void show(const LoggedStep& step, double rate);

  const Workload& work_;
  RunDir& dir_;
  EventsFile& events_;
  Progress& progress_;
  const int64_t first_step_;
  double window_loss_ = 0, window_samples_ = 0, window_seconds_ = 0;  // since the last line of the log
  std::array<double, kPauses> pauses_{};                              // since the last progress line
  Clock::time_point shown_ = Clock::now();
};

/// "waiting: data 12 %, other ranks 3 %" of `seconds`, without what is less than one percent; "" if nothing
/// is left.
std::string waiting_text(double data, double ranks, double evaluation, double checkpoints, double seconds);

}  // namespace troika::internal

// What one rank of a training run does, from its replica to the last evaluation. Internal to train.
#pragma once

#include <atomic>
#include <optional>

#include "troika/base/progress.h"
#include "troika/comm/communicator.h"
#include "troika/train/evaluate.h"
#include "troika/train/run_dir.h"
#include "troika/train/tensorboard.h"
#include "troika/train/trainer.h"
#include "troika/train/training_state.h"

namespace troika::internal {

/// What the ranks of a run share: read by all, written by rank 0 only, unless said otherwise.
struct Run {
  const Workload& work;
  const TrainOptions& options;
  RunDir& dir;
  EventsFile& events;
  Progress& progress;
  BatchSource& source;
  const Evaluator* validation;  // null if there are no such rows
  const Evaluator* test;
  const Checkpoint* resumed;  // null for a fresh run
  TrainingState start;
  Clock::time_point begin;  // of the whole call
  TrainReport& report;
  std::vector<std::vector<Span>>& spans;  // each rank writes its own entry
  Clock::time_point trace_from = {};
  std::vector<NamedTensor> given = {};  // a state that rank 0 has read and every rank loads
};

/// Collective: every rank thread calls it with the same `run`.
void train_rank(Run& run, Communicator& communicator);

}  // namespace troika::internal

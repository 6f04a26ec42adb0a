// The pieces of a training step that one rank computes: read, dealt out and encoded. Shared by the training
// run and the trial before it, so that the trial does what the run will do. Threading: an object belongs to
// one rank's thread.
#pragma once

#include <functional>
#include <vector>

#include "troika/train/workload.h"

namespace troika::internal {

class StepPieces {
 public:
  /// Both must outlive it; `source` has a reader for every rank of the mesh.
  StepPieces(const Workload& work, BatchSource& source, const Mesh& mesh, int rank)
      : work_(work), source_(source), ranks_(mesh.data), rank_(mesh.coordinate(rank).data), reader_(rank) {}

  /// The pieces of step `step` (from 0), in order of micro-batches; valid until the next step's are asked
  /// for. `loaded` hears of each one with the time when its loading began.
  const std::vector<Batch>& of(
      int64_t step, const std::function<void(int64_t micro_batch, Clock::time_point)>& loaded = {});

  /// The same without tensors: how many samples, and where.
  std::vector<Batch> places_of(int64_t step) const;

 private:
  const Workload& work_;
  BatchSource& source_;
  const int ranks_, rank_;  // of the data axis
  const int reader_;
  std::vector<RowBuffer> rows_;  // kept, so that memory is touched once
  std::vector<Batch> pieces_;
  int64_t step_ = -1;  // whose pieces these are
};

/// Intra-op threads of the calling thread, put back at the end: with one rank that is the caller's own
/// thread.
class ThreadCount {
 public:
  explicit ThreadCount(int64_t threads);
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;
  ~ThreadCount();

 private:
  int before_;
};

}  // namespace troika::internal

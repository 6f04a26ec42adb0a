// execute(): one lane does its row of a schedule, action by action. It knows what each kind of action is and
// nothing about schedules: which action comes when was decided, and proved, before. Threading: called by the
// lane's rank; all lanes run the same schedule at the same time.
#pragma once

#include <functional>
#include <vector>

#include "troika/base/clock.h"
#include "troika/parallel/memory_meter.h"
#include "troika/parallel/stage.h"
#include "troika/parallel/tensor_link.h"
#include "troika/schedule/schedule.h"
#include "troika/trace/trace.h"

namespace troika {

/// What a lane works with.
struct LaneWork {
  std::vector<Stage*> stages;  // by number; null: another lane's
  TensorLink* link = nullptr;  // null: there is one lane
  /// Null: data is there, and loads are left out.
  std::function<void(int stage, int micro_batch)> load = nullptr;
  std::function<void(int stage, int update)> reduce_gradients = [](int, int) {};
  std::function<void(int stage, int update)> optimizer_step = [](int, int) {};
  /// Hears of each action before it begins: a sign of life, and words for whoever waits.
  std::function<void(const Action&)> begins = [](const Action&) {};
  /// What the actions of a stage allocate is charged to its meter; null: nobody counts.
  std::function<const MemoryMeter*(int stage)> meter_of = nullptr;
};

/// Where spans go; null: nobody looks.
struct SpanLog {
  std::vector<Span>* spans = nullptr;
  int rank = 0;
  Clock::time_point from;
};

/// `schedule` must be valid, with messages stated if it has more than one lane. Throws what the model throws
/// as Error "stage 2, forward, micro-batch 1: <cause>" if there is more than one stage.
void execute(const Schedule& schedule, int lane, int64_t step, const LaneWork& work, const SpanLog& log = {});

}  // namespace troika

#include "troika/schedule/liveness.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/passes/after_sends.h"

namespace troika {
namespace {

// Which backwards of which update of each stage are still to come.
class Remaining {
 public:
  explicit Remaining(const Schedule& schedule)
      : updates_(schedule.num_updates),
        update_of_(updates_of_micro_batches(schedule)),
        left_(static_cast<size_t>(schedule.num_stages()) * static_cast<size_t>(schedule.num_updates)) {
    for (int stage = 0; stage < schedule.num_stages(); ++stage) {
      for (const int update : update_of_) ++left_[at(stage, update)];
    }
  }

  /// The update whose last backward `action` is, or -1.
  int completed_by(const Action& action) {
    if (!has_weight_part(action.op)) return -1;
    const int update = update_of_[static_cast<size_t>(action.micro_batch)];
    return --left_[at(action.stage, update)] == 0 ? update : -1;
  }

  size_t at(int stage, int update) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(updates_) + static_cast<size_t>(update);
  }
  size_t size() const { return left_.size(); }

 private:
  int updates_;
  std::vector<int> update_of_;  // per micro-batch
  std::vector<int> left_;       // per stage and update
};

// Adds `op` of each update of each stage that has none yet: after the R of that update if `after_reductions`,
// else after its last backward.
Schedule with_each_update(const Schedule& schedule, Op op, bool after_reductions) {
  Remaining remaining(schedule);
  std::vector<bool> there(remaining.size());
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      if (action.op == op) there[remaining.at(action.stage, action.micro_batch)] = true;
    }
  }
  Schedule complete = schedule;
  for (Lane& lane : complete.lanes) {
    AfterSends out;
    for (const Action& action : lane) {
      out.keep(action);
      int update = remaining.completed_by(action);
      if (after_reductions) update = action.op == Op::reduce_gradients ? action.micro_batch : -1;
      if (update >= 0 && !there[remaining.at(action.stage, update)]) out.add({op, action.stage, update});
    }
    lane = out.finish();
  }
  return complete;
}

}  // namespace

Schedule with_reductions(const Schedule& schedule) {
  if (schedule.kind == Kind::forward) return schedule;
  Schedule complete = with_each_update(schedule, Op::reduce_gradients, false);
  complete.stated.reductions = true;
  return complete;
}

Schedule with_updates(const Schedule& schedule) {
  if (schedule.kind == Kind::forward) return schedule;
  Schedule complete = with_each_update(schedule, Op::optimizer_step, schedule.stated.reductions);
  complete.stated.updates = true;
  return complete;
}

Schedule with_weight_versions(const Schedule& schedule) {
  Schedule counted = schedule;
  counted.max_versions = versions_held(schedule);
  return counted;
}

}  // namespace troika

#include "troika/base/error.h"
#include "troika/schedule/passes.h"

namespace troika {

Schedule with_recompute(const Schedule& schedule, const std::vector<int>& stages) {
  // Nothing of a forward-only schedule is kept, so there is nothing to compute again.
  if (stages.empty() || schedule.kind == Kind::forward) return schedule;
  const auto count = static_cast<size_t>(schedule.num_stages());
  std::vector<bool> added(count);
  Schedule complete = schedule;
  complete.recomputed.resize(count);
  for (const int stage : stages) {
    TROIKA_ASSERT(stage >= 0 && static_cast<size_t>(stage) < count,
                  fmt::format("stage {} of {}", stage, count));
    const auto at = static_cast<size_t>(stage);
    added[at] = added[at] || !complete.recomputed[at];
    complete.recomputed[at] = true;
  }
  for (Lane& lane : complete.lanes) {
    Lane out;
    for (const Action& action : lane) {
      if (has_input_part(action.op) && added[static_cast<size_t>(action.stage)]) {
        out.push_back({Op::recompute, action.stage, action.micro_batch});
      }
      out.push_back(action);
    }
    lane = std::move(out);
  }
  return complete;
}

}  // namespace troika

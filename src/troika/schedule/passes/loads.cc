#include <algorithm>

#include "troika/base/error.h"
#include "troika/schedule/needs.h"
#include "troika/schedule/passes.h"

namespace troika {
namespace {

Lane with_loads_of(const Lane& lane, const Dependencies& dependencies, size_t ahead) {
  std::vector<Action> passes;
  for (const Action& action : lane) {
    if (is_pass(action.op)) passes.push_back(action);
  }
  Lane out;
  size_t passed = 0;  // passes of the lane already in `out`
  size_t looked = 0;  // passes whose load is already in `out`
  for (const Action& action : lane) {
    if (is_pass(action.op)) {
      const size_t end = ahead < passes.size() - passed ? passed + ahead + 1 : passes.size();
      for (; looked < end; ++looked) {
        const Action& later = passes[looked];
        if (later.op == Op::forward && dependencies.loads(later.stage)) {
          out.push_back({Op::load, later.stage, later.micro_batch});
        }
      }
      ++passed;
    }
    out.push_back(action);
  }
  return out;
}

}  // namespace

Schedule with_loads(const Schedule& schedule, int ahead) {
  TROIKA_ASSERT(ahead >= 0, fmt::format("loads {} passes ahead", ahead));
  if (schedule.stated.loads) return schedule;
  const Dependencies dependencies(schedule);
  Schedule complete = schedule;
  for (Lane& lane : complete.lanes) lane = with_loads_of(lane, dependencies, static_cast<size_t>(ahead));
  complete.stated.loads = true;
  return complete;
}

}  // namespace troika

#include <algorithm>

#include "troika/schedule/passes.h"
#include "troika/schedule/passes/after_sends.h"

namespace troika {

Schedule with_split_backward(const Schedule& schedule) {
  Schedule split = schedule;
  for (Lane& lane : split.lanes) {
    AfterSends out;
    for (const Action& action : lane) {
      if (action.op != Op::backward) {
        out.keep(action);
        continue;
      }
      out.keep({Op::backward_input, action.stage, action.micro_batch});
      out.add({Op::backward_weight, action.stage, action.micro_batch});
    }
    lane = out.finish();
  }
  return split;
}

Schedule with_fused_backward(const Schedule& schedule) {
  Schedule fused = schedule;
  for (Lane& lane : fused.lanes) {
    std::erase_if(lane, [](const Action& action) { return action.op == Op::backward_weight; });
    for (Action& action : lane) {
      if (action.op == Op::backward_input) action.op = Op::backward;
    }
  }
  return fused;
}

}  // namespace troika

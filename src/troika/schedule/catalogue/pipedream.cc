#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"
#include "troika/schedule/passes.h"

// 1F1B where each micro-batch is an update (*): the pipeline never drains within the window. A backward uses
// the weights of its forward, so stage s holds up to p - s versions. 3 stages, a window of 4 updates, a
// backward (B0---) takes as long as two forwards:
//
//     F0 F1 F2 .  .  .  .  B0---*F3 B1---*.  B2---*.  B3---*
//     .  F0 F1 .  .  B0---*F2 B1---*F3 B2---*.  B3---*
//     .  .  F0 B0---*F1 B1---*F2 B2---*F3 B3---*

namespace troika {
namespace {

Schedule make_pipedream(const ScheduleRequest& request) {
  Schedule schedule = one_stage_per_lane(request.micro_batches, shortest_warm_ups(request.lanes));
  schedule.num_updates = request.micro_batches;
  schedule.stated.updates = true;
  for (Lane& lane : schedule.lanes) {
    Lane with_updates;
    for (const Action& action : lane) {
      with_updates.push_back(action);
      if (action.op != Op::backward) continue;
      with_updates.push_back({Op::optimizer_step, action.stage, action.micro_batch});
    }
    lane = std::move(with_updates);
  }
  return with_weight_versions(schedule);
}

}  // namespace

CatalogueEntry pipedream_entry() {
  return {
      .name = "pipedream",
      .summary =
          "1f1b that never drains: every micro-batch is an update, its backward uses its forward's weights",
      .bubble = "(p-1)(F+I+W), once per window",
      .memory = "min(p, m), and p-s versions of the weights in stage s",
      .use = "where late gradients do no harm and stages are too slow to wait for a drain",
      .paper = "Harlap et al., 2018, arXiv:1806.03377",
      .asynchronous = true,
      .make = make_pipedream};
}

}  // namespace troika

#include "troika/base/error.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"
#include "troika/schedule/passes.h"

// 1F1B over a window of global batches. The update (*) of batch k is done before the first forward of batch
// k + 2, so all forwards of batch t use version max(0, t - 1): w(t+1) = w(t) - opt(g(w(t-1))), in every
// stage. 2 stages, 3 global batches of 2 micro-batches, a backward (B0---) takes as long as two forwards:
//
//     F0 F1 .  .  B0--- F2 B1--- F3 B2---*F4 B3--- F5 B4--- .  B5---**
//     .  F0 B0--- F1 B1--- F2 B2--- F3 B3---*F4 B4--- F5 B5---**

namespace troika {
namespace {

constexpr int kDefaultUpdates = 3;
constexpr int kVersions = 2;

// The update of batch k stands before the first forward of batch k + kVersions, the last ones at the end.
Lane with_late_updates(const Lane& lane, int per_batch, int updates) {
  Lane whole;
  const int stage = lane.front().stage;
  int done = 0;
  for (const Action& action : lane) {
    if (action.op == Op::forward && action.micro_batch == (done + kVersions) * per_batch) {
      whole.push_back({Op::optimizer_step, stage, done++});
    }
    whole.push_back(action);
  }
  while (done < updates) whole.push_back({Op::optimizer_step, stage, done++});
  return whole;
}

Schedule make_pipedream_2bw(const ScheduleRequest& request) {
  if (request.micro_batches < request.lanes) {
    fail_usage(
        "pipedream-2bw of {} stages: expected at least {} micro-batches per global batch, as many as are on "
        "their way at once, got {} (1f1b and pipedream take any number)",
        request.lanes, request.lanes, request.micro_batches);
  }
  const int updates = request.updates == 0 ? kDefaultUpdates : request.updates;
  Schedule schedule = one_stage_per_lane(request.micro_batches * updates, shortest_warm_ups(request.lanes));
  schedule.num_updates = updates;
  schedule.stated.updates = true;
  for (Lane& lane : schedule.lanes) lane = with_late_updates(lane, request.micro_batches, updates);
  return with_weight_versions(schedule);
}

}  // namespace

CatalogueEntry pipedream_2bw_entry() {
  return {.name = "pipedream-2bw",
          .summary =
              "1f1b that doesn't drain between global batches: two versions of the weights, gradients one "
              "update late",
          .bubble = "(p-1)(F+I+W), once per window",
          .memory = "p, and 2 versions of the weights",
          .use = "pipedream's throughput with two versions of the weights, whatever the number of stages",
          .paper = "Narayanan et al., 2021, arXiv:2006.09503",
          .asynchronous = true,
          .make = make_pipedream_2bw};
}

}  // namespace troika

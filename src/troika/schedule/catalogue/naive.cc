#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"

// One micro-batch at a time: nothing overlaps. 3 stages, 2 micro-batches, a backward (B0---) takes as long as
// two forwards:
//
//     F0 .  .  .  .  .  .  B0--- F1 .  .  .  .  .  .  B1---
//     .  F0 .  .  .  B0--- .  .  .  F1 .  .  .  B1---
//     .  .  F0 B0--- .  .  .  .  .  .  F1 B1---

namespace troika {
namespace {

Schedule make_naive(const ScheduleRequest& request) {
  const std::vector<int> no_warm_up(static_cast<size_t>(request.lanes), 0);
  return one_stage_per_lane(request.micro_batches, no_warm_up);
}

}  // namespace

CatalogueEntry naive_entry() {
  return {.name = "naive",
          .summary = "one micro-batch at a time through all stages, nothing overlaps",
          .bubble = "m(p-1)(F+I+W)",
          .memory = "1",
          .use = "to see what a pipeline gains, or where one micro-batch is all that fits",
          .paper = "no paper: a model cut in pieces, and nothing else",
          .make = make_naive};
}

}  // namespace troika

#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"

// Stage s does p - 1 - s forwards, then a forward and a backward in turn: it never holds more than p - s
// micro-batches. 3 stages, 4 micro-batches, a backward (B0---) takes as long as two forwards:
//
//     F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3---
//     .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3---
//     .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3---

namespace troika {
namespace {

Schedule make_one_f_one_b(const ScheduleRequest& request) {
  return one_stage_per_lane(request.micro_batches, shortest_warm_ups(request.lanes));
}

}  // namespace

CatalogueEntry one_f_one_b_entry() {
  return {
      .name = "1f1b",
      .summary = "a backward as early as it can be: after a warm-up, one forward and one backward in turn",
      .bubble = "(p-1)(F+I+W)",
      .memory = "min(p, m)",
      .use = "the common choice: gpipe's time, and memory that doesn't grow with the micro-batches",
      .paper = "PipeDream-Flush in Narayanan et al., 2021, arXiv:2006.09503",
      .make = make_one_f_one_b};
}

}  // namespace troika

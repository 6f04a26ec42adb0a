#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"

// All forwards, then all backwards. 3 stages, 4 micro-batches, a backward (B0---) takes as long as two
// forwards:
//
//     F0 F1 F2 F3 .  .  .  .  .  .  B0--- B1--- B2--- B3---
//     .  F0 F1 F2 F3 .  .  .  B0--- B1--- B2--- B3---
//     .  .  F0 F1 F2 F3 B0--- B1--- B2--- B3---

namespace troika {
namespace {

Schedule make_gpipe(const ScheduleRequest& request) {
  const std::vector<int> all_first(static_cast<size_t>(request.lanes), request.micro_batches);
  return one_stage_per_lane(request.micro_batches, all_first);
}

}  // namespace

CatalogueEntry gpipe_entry() {
  return {.name = "gpipe",
          .summary = "all forwards, then all backwards",
          .bubble = "(p-1)(F+I+W)",
          .memory = "m",
          .use = "the simplest pipeline; for few micro-batches, or with recompute",
          .paper = "Huang et al., 2019, arXiv:1811.06965",
          .make = make_gpipe};
}

}  // namespace troika

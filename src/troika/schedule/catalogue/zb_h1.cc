#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"

// 1F1B with backwards in two parts: the next stage waits for I alone, W fills gaps. Stage s lets s of them
// wait, so that no stage holds more than 1F1B's first one. 3 stages, 4 micro-batches, F = I = W:
//
//     F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3
//     .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
//     .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3

namespace troika {
namespace {

Schedule make_zb_h1(const ScheduleRequest& request) {
  Schedule schedule =
      one_stage_per_lane(request.micro_batches, shortest_warm_ups(request.lanes), Op::backward_input);
  int stage = 0;
  for (Lane& lane : schedule.lanes) lane = with_late_weights(lane, stage++);
  return schedule;
}

}  // namespace

CatalogueEntry zb_h1_entry() {
  return {.name = "zb-h1",
          .summary = "1f1b whose weight parts wait and fill the end of the step",
          .bubble = "(p-1)(F+I-W)",
          .memory = "min(p, m)",
          .use = "instead of 1f1b where the backward can be split: a smaller bubble in the same memory",
          .paper = "Qi et al., 2024, arXiv:2401.10241",
          .splits_backward = true,
          .make = make_zb_h1};
}

}  // namespace troika

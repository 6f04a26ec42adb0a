#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"

// ZB-H1 with a warm-up twice as long, 2 (p - 1 - s), and 2s weight parts that may wait: with F = I = W no
// lane has a gap between its first pass and its last, and the next step can follow close. 3 stages, 5
// micro-batches:
//
//     F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4
//     .  F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4
//     .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4

namespace troika {
namespace {

Schedule make_zb_h2(const ScheduleRequest& request) {
  std::vector<int> warm_ups = shortest_warm_ups(request.lanes);
  for (int& warm_up : warm_ups) warm_up *= 2;
  Schedule schedule = one_stage_per_lane(request.micro_batches, warm_ups, Op::backward_input);
  int stage = 0;
  for (Lane& lane : schedule.lanes) lane = with_late_weights(lane, 2 * stage++);
  return schedule;
}

}  // namespace

CatalogueEntry zb_h2_entry() {
  return {
      .name = "zb-h2",
      .summary = "zb-h1 with a warm-up twice as long: no bubble where steps overlap and F = I = W",
      .bubble = "(p-1)(F+I-2W)",
      .memory = "min(2p-1, m)",
      .use = "where steps overlap (no barrier between them) and memory for twice 1f1b's activations is there",
      .paper = "Qi et al., 2024, arXiv:2401.10241",
      .splits_backward = true,
      .gains_by_overlap = true,
      .make = make_zb_h2};
}

}  // namespace troika

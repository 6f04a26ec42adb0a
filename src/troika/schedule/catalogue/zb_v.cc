#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/vee_search.h"

// Each lane has a stage on the way down the V and one on the way up, so that the last stage is beside the
// first and the memory of a micro-batch is the same for all lanes. Forwards and input parts take turns,
// weight parts fill the gaps. With F = I = W, no messages' time and m >= 2p-1 no lane has a gap between its
// first pass and its last. Made to measure by a search (vee_search.h). 4 lanes, 4 micro-batches, F = I = W,
// small letters are the stages on the way up:
//
//     F0 F1 F2 F3 .  .  .  f0 i0 f1 i1 f2 i2 w0 f3 i3 w1 I0 W0 w2 I1 W1 w3 I2 W2 I3 W3
//     .  F0 F1 F2 F3 .  f0 .  f1 i0 f2 i1 w0 f3 i2 w1 I0 W0 i3 I1 W1 w2 I2 W2 I3 W3 w3
//     .  .  F0 F1 F2 f0 F3 f1 .  f2 i0 w0 f3 i1 w1 I0 i2 w2 I1 W0 i3 I2 W1 I3 W2 W3 w3
//     .  .  .  F0 f0 F1 f1 F2 f2 F3 f3 i0 w0 I0 i1 w1 I1 i2 w2 I2 W0 i3 I3 W1 W2 W3 w3

namespace troika {
namespace {

Schedule make_zb_v(const ScheduleRequest& request) {
  return vee::make_vee(vee::VeeKind::zero_bubble, request);
}

}  // namespace

CatalogueEntry zb_v_entry() {
  return {
      .name = "zb-v",
      .summary = "zero bubble in a V of two stages per lane, with 1f1b's memory; made for the given times",
      .bubble = "0 where F = I = W, messages take no time and m >= 2p-1; else small",
      .memory = "min(p, m)",
      .use = "the fastest at 1f1b's memory, where steps overlap and the model can be cut into 2p stages",
      .paper = "Qi et al., 2024, Zero Bubble Pipeline Parallelism, arXiv:2401.10241",
      .default_chunks = 2,
      .splits_backward = true,
      .gains_by_overlap = true,
      .make = make_zb_v};
}

}  // namespace troika

#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/vee_search.h"

// A V of two stages per lane (zb_v.cc) that holds about a third of 1f1b's activations, 2 floor((p+4)/3)
// chunks: a micro-batch goes down, up and back as fast as it can. The order is tight, and times that differ
// from each other cost more than in v-half. Made to measure by a search (vee_search.h). 4 lanes, 3
// micro-batches, F = I = W, small letters are the stages on the way up:
//
//     F0 F1 F2 .  .  .  .  f0 i0 w0 f1 i1 w1 .  .  I0 W0 .  .  f2 i2 I1 w2 W1 .  .  .  I2 W2
//     .  F0 F1 .  .  .  f0 .  f1 i0 w0 F2 i1 w1 I0 W0 .  .  f2 .  I1 i2 w2 W1 .  .  I2 W2
//     .  .  F0 F1 .  f0 .  f1 .  .  i0 w0 F2 I0 i1 w1 W0 f2 .  I1 W1 .  i2 w2 .  I2 W2
//     .  .  .  F0 f0 F1 f1 .  .  .  .  i0 I0 W0 F2 w0 f2 i1 I1 w1 W1 .  .  i2 I2 w2 W2

namespace troika {
namespace {

Schedule make_v_min(const ScheduleRequest& request) { return vee::make_vee(vee::VeeKind::least, request); }

}  // namespace

CatalogueEntry v_min_entry() {
  return {
      .name = "v-min",
      .summary = "a V of two stages per lane with about a third of 1f1b's memory; made for the given times",
      .bubble = "about 3p to 4p F where F = I = W and messages take no time",
      .memory = "min(floor((p+4)/3), m)",
      .use = "where memory is shortest: the fewest activations that still keep all lanes at work",
      .paper = "Qi et al., 2024, Pipeline Parallelism with Controllable Memory, arXiv:2405.15362",
      .default_chunks = 2,
      .splits_backward = true,
      .make = make_v_min};
}

}  // namespace troika

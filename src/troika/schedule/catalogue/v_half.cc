#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/vee_search.h"

// A V of two stages per lane (zb_v.cc) that holds about half of 1f1b's activations: 2 floor(p/2) + 2 chunks.
// On the way down a micro-batch takes two slots per lane, on the way up one, and what each lane holds is
// about the same. Made to measure by a search (vee_search.h). 4 lanes, 4 micro-batches, F = I = W, small
// letters are the stages on the way up:
//
//     F0 F1 F2 F3 .  .  .  f0 i0 w0 f1 i1 w1 f2 i2 w2 .  I0 W0 f3 i3 I1 w3 I2 W1 W2 .  I3 W3
//     .  F0 F1 F2 F3 .  f0 .  f1 i0 w0 f2 i1 w1 .  i2 I0 W0 f3 w2 I1 i3 I2 w3 W1 W2 I3 W3
//     .  .  F0 F1 F2 f0 .  f1 .  f2 i0 w0 F3 i1 I0 w1 W0 f3 i2 I1 w2 I2 i3 W1 W2 I3 w3 W3
//     .  .  .  F0 f0 F1 f1 F2 f2 .  .  i0 w0 I0 W0 F3 f3 i1 I1 i2 I2 W1 w1 i3 I3 W2 W3 w2 w3

namespace troika {
namespace {

Schedule make_v_half(const ScheduleRequest& request) { return vee::make_vee(vee::VeeKind::half, request); }

}  // namespace

CatalogueEntry v_half_entry() {
  return {.name = "v-half",
          .summary = "a V of two stages per lane with about half of 1f1b's memory; made for the given times",
          .bubble = "about 3p F where F = I = W and messages take no time",
          .memory = "min(floor(p/2) + 1, m)",
          .use = "where 1f1b's activations don't fit: half of them, and a smaller bubble than 1f1b's",
          .paper = "Qi et al., 2024, Pipeline Parallelism with Controllable Memory, arXiv:2405.15362",
          .default_chunks = 2,
          .splits_backward = true,
          .make = make_v_half};
}

}  // namespace troika

// What the executor adds to the passes of a pipeline. The stages only sleep, in both directions, so that many
// lanes run side by side on few cores; everything else is a real step: Replica, Stage, TensorLink, execute().
// Threading: from one thread; it starts rank threads of its own.
#pragma once

#include <string>

#include "stats.h"

namespace troika::bench {

struct OverheadCase {
  std::string schedule;
  int lanes = 2;
  int micro_batches = 4;
  double pass_s = 0.005;  // a forward, an input part and a weight part sleep so long each
  int steps = 5;          // measured, after some that aren't
};

/// Over the measured steps.
struct Overhead {
  Spread ratio;  // makespan / the one simulated from the passes' measured durations, without messages
  double makespan_s = 0;  // medians
  double simulated_s = 0;
  int actions = 0;        // of all lanes
  double own_us = 0;      // of an action, the mean: between actions, in sends, and in receives after the send
  double message_us = 0;  // from the start of a send to the end of a receive that waited for it, the median
  double pass_us = 0;     // of a pass beside its sleep: the stage, autograd and the loss
  double jitter_us = 0;   // standard deviation of the passes of one kind and stage, the mean over the kinds
  bool in_order = true;   // each lane did the actions of the schedule, in its order
};

Overhead overhead_of(const OverheadCase& of);

}  // namespace troika::bench

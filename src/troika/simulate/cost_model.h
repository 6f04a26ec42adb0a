// CostModel: seconds and bytes of an action, uniform, per stage or measured. A value; thread-safe as such.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "troika/schedule/action.h"

namespace troika {

/// Of one stage and one micro-batch. Bytes are what with_memory() adds up.
struct StageCost {
  double forward_s = 1;
  double input_s = 1;                     // of the backward: the gradient of the input
  double weight_s = 1;                    // and of the weights
  std::optional<double> backward_s = {};  // of a backward in one part; unset: the sum of the two
  double load_s = 0;
  double reduce_s = 0;
  double update_s = 0;
  double activation_bytes = 0;      // from the start of the forward to the end of the backward's input part
  double weight_pending_bytes = 0;  // from there to the end of the weight part
  double kept_input_bytes = 0;      // what a recomputed stage keeps instead, until it is computed again
  double output_bytes = 0;          // of a message to a later stage, and of its gradient
  double weight_bytes = 0;          // of one version
  double gradient_bytes = 0;
  double optimizer_bytes = 0;
  bool operator==(const StageCost&) const = default;
};

/// A message takes latency + bytes * seconds per byte, and occupies neither lane.
struct Link {
  double latency_s = 0;
  double seconds_per_byte = 0;
  bool operator==(const Link&) const = default;
};

struct CostModel {
  std::vector<StageCost> stages;
  Link link;                                  // between any two lanes...
  std::map<std::pair<int, int>, Link> links;  // ...but these (from lane, to lane)

  static CostModel uniform(int stages, const StageCost& cost, const Link& link = {});

  /// How long the action keeps its lane busy; 0 for messages.
  double seconds(const Action& action) const;
  /// From the end of the producer to the arrival in the other lane; 0 within a lane.
  double message_seconds(int from_lane, int to_lane, double bytes) const;
};

}  // namespace troika

// What the makers of the V-shaped schedules (zb-v, v-half, v-min) share about passes and times. Two stages
// per lane: stage l goes down the V, stage 2p-1-l comes up again. Whole numbers only, so that every machine
// makes the same schedule. Pure; thread-safe.
#pragma once

#include <array>

#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/reproducible.h"

namespace troika::vee {

/// The six passes of a lane for one micro-batch, the first four in the order in which it goes through them.
enum Pass : uint8_t { kForwardDown, kForwardUp, kInputUp, kInputDown, kWeightDown, kWeightUp };
inline constexpr int kPasses = 6;
inline constexpr int kChain = 4;  // all but the weight parts

/// Whether the passes of a micro-batch go from lane 0 to the last one, or the other way.
inline bool to_higher_lanes(int pass) { return pass == kForwardDown || pass == kInputUp; }

struct Shape {
  int lanes = 1;
  int micro_batches = 1;
  Ticks forward = 1, input = 1, weight = 1, message = 0;
  int most_held = 2;  // chunks of activations per lane: from a forward's start to its weight part's end

  Ticks work() const { return 2 * micro_batches * (forward + input + weight); }  // of a lane
  Ticks time_of(int pass) const { return pass <= kForwardUp ? forward : pass <= kInputDown ? input : weight; }
  /// Index of a value per lane, pass and micro-batch.
  size_t at(int lane, int pass, int micro_batch) const {
    return (static_cast<size_t>(lane) * kPasses + static_cast<size_t>(pass)) *
               static_cast<size_t>(micro_batches) +
           static_cast<size_t>(micro_batch);
  }
  size_t num_passes() const {
    return static_cast<size_t>(lanes) * kPasses * static_cast<size_t>(micro_batches);
  }
};

/// Times as small whole numbers in the same ratios, where there are such; else rounded to a millionth of the
/// longest. Without any time all passes count the same.
Shape make_shape(const ScheduleRequest& request, int most_held);

}  // namespace troika::vee

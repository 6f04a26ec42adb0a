// NoiseTape: the keyed noise of a piece of a forward, so that the same can be drawn again later, when neither
// the model nor the place in the run is at hand. Threading: a scope is of its thread; a tape is a value.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "troika/parallel/noise_mask.h"

namespace troika {

/// All that a mask depends on, but its probability.
struct NoiseDraw {
  uint64_t key = 0;
  int64_t first_sample = 0;
  NoiseLayout layout;
};

using NoiseTape = std::vector<NoiseDraw>;

/// While there is one, draws of this thread are written down; the innermost one counts.
class NoiseRecording {
 public:
  explicit NoiseRecording(NoiseTape& tape);
  NoiseRecording(const NoiseRecording&) = delete;
  NoiseRecording& operator=(const NoiseRecording&) = delete;
  ~NoiseRecording();

 private:
  NoiseTape* before_;
};

/// While there is one, draws of this thread are those of `tape`, in order; one too many is an error.
class NoiseReplay {
 public:
  explicit NoiseReplay(const NoiseTape& tape);
  NoiseReplay(const NoiseReplay&) = delete;
  NoiseReplay& operator=(const NoiseReplay&) = delete;
  ~NoiseReplay();

 private:
  const NoiseTape* before_;
  size_t next_before_;
};

/// The noise that is about to be drawn, of these sizes. Needs a StepScope; throws as next_noise_layout().
NoiseDraw next_noise(c10::IntArrayRef sizes);

}  // namespace troika

#include "troika/parallel/noise_tape.h"

#include <c10/util/Exception.h>

#include "troika/parallel/noise_plan.h"

namespace troika {
namespace {

thread_local NoiseTape* recorded = nullptr;
thread_local const NoiseTape* replayed = nullptr;
thread_local size_t next_replayed = 0;

}  // namespace

NoiseRecording::NoiseRecording(NoiseTape& tape) : before_(recorded) { recorded = &tape; }
NoiseRecording::~NoiseRecording() { recorded = before_; }

NoiseReplay::NoiseReplay(const NoiseTape& tape) : before_(replayed), next_before_(next_replayed) {
  replayed = &tape;
  next_replayed = 0;
}
NoiseReplay::~NoiseReplay() {
  replayed = before_;
  next_replayed = next_before_;
}

NoiseDraw next_noise(c10::IntArrayRef sizes) {
  if (replayed != nullptr) {
    const NoiseTape& tape = *replayed;
    TORCH_CHECK(next_replayed < tape.size(), "it draws noise more than the ", tape.size(),
                " times of its first forward");
    return tape[next_replayed++];
  }
  const NoiseLayout layout = next_noise_layout(sizes);
  const NoiseDraw draw{next_noise_key(), current_step()->samples.begin, layout};
  if (recorded != nullptr) recorded->push_back(draw);
  return draw;
}

}  // namespace troika

#include "troika/parallel/step_context.h"

#include "troika/base/error.h"
#include "troika/base/random.h"

namespace troika {
namespace {

struct Present {
  const StepContext* context = nullptr;
  uint64_t layer = 0;
  uint64_t calls = 0;
};
thread_local Present present;

}  // namespace

StepScope::StepScope(const StepContext& context)
    : before_(present.context),
      layer_before_(present.layer),
      calls_before_(present.calls),
      context_(context) {
  present = {&context_, 0, 0};
}
StepScope::~StepScope() { present = {before_, layer_before_, calls_before_}; }

LayerScope::LayerScope(uint64_t name_hash) : layer_before_(present.layer), calls_before_(present.calls) {
  present.layer = name_hash;
  present.calls = 0;
}
LayerScope::~LayerScope() {
  present.layer = layer_before_;
  present.calls = calls_before_;
}

const StepContext* current_step() { return present.context; }

uint64_t next_noise_key() {
  TROIKA_ASSERT(present.context != nullptr, "noise is keyed within a step only");
  const StepContext& context = *present.context;
  const uint64_t step_key = mix_keys(context.seed, static_cast<uint64_t>(context.step));
  return mix_keys(mix_keys(step_key, present.layer), present.calls++);
}

uint64_t noise_keys_taken() { return present.calls; }

}  // namespace troika

// Hooks that tell a GradientSync which parameter's gradient has just been accumulated.
// Threading: they fire on the thread that runs backward, the rank's own.
#pragma once

#include "troika/parallel/gradient_sync.h"

namespace troika {

/// One hook per parameter, as long as this lives.
class GradientHooks {
 public:
  GradientHooks(const std::vector<NamedTensor>& parameters, GradientSync& sync);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
};

}  // namespace troika

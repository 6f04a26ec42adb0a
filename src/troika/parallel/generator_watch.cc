#include "troika/parallel/generator_watch.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "troika/base/error.h"
#include "troika/parallel/tensor/tensor_axis.h"

namespace troika {
namespace {

std::mutex& watch_mutex() {
  static std::mutex mutex;
  return mutex;
}

at::mt19937_data_pod state_of_default_generator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->engine().data();
}

bool equal(const at::mt19937_data_pod& a, const at::mt19937_data_pod& b) {
  return a.seed_ == b.seed_ && a.left_ == b.left_ && a.next_ == b.next_ && a.state_ == b.state_;
}

}  // namespace

Tensors forward_watched(const Model& model, const Tensors& inputs, int ranks) {
  // Tensor peers need each other in a forward: they take one turn together, and go layer by layer.
  TensorAxis* axis = model.axis();
  std::unique_lock lock(watch_mutex(), std::defer_lock);
  const auto together = [axis] {
    if (axis != nullptr) axis->communicator().barrier();
  };
  if (axis == nullptr || axis->rank() == 0) lock.lock();
  together();
  auto before = state_of_default_generator();
  together();
  return model.forward(inputs, [&](size_t layer, const Tensors&) {
    together();
    const auto after = state_of_default_generator();
    if (!equal(before, after)) {
      fail_usage(
          "layer \"{}\" draws random numbers in forward that are not keyed by sample (dropout would be): "
          "with {} ranks the result would depend on the number of ranks. Train on one rank, or without them",
          model.layers()[layer].first, ranks);
    }
    before = after;
    together();
    return true;
  });
}

}  // namespace troika

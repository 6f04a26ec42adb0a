#include "troika/parallel/generator_watch.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "troika/base/error.h"

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
  const std::lock_guard lock(watch_mutex());
  auto before = state_of_default_generator();
  return model.forward(inputs, [&](size_t layer, const Tensors&) {
    const auto after = state_of_default_generator();
    if (!equal(before, after)) {
      fail_usage(
          "layer \"{}\" draws random numbers in forward that are not keyed by sample (dropout would be): "
          "with {} ranks the result would depend on the number of ranks. Train on one rank, or without them",
          model.layers()[layer].first, ranks);
    }
    before = after;
    return true;
  });
}

}  // namespace troika

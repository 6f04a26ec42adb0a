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
  Tensors values = inputs;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const auto before = state_of_default_generator();
    values = model.forward_layer(i, values);
    if (!equal(before, state_of_default_generator())) {
      fail_usage(
          "layer \"{}\" draws random numbers in forward (dropout?): with {} ranks the result would depend on "
          "the number of ranks. Train on one rank, or without the dropout",
          model.layers()[i].first, ranks);
    }
  }
  return values;
}

}  // namespace troika

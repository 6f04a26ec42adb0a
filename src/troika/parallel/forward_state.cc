#include "troika/parallel/forward_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <torch/nn/module.h>

#include <mutex>

namespace troika {
namespace {

void set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

GeneratorKeeper::GeneratorKeeper(const at::Tensor& begins_in) : GeneratorKeeper() {
  set_generator_state(begins_in);
}

GeneratorKeeper::~GeneratorKeeper() { set_generator_state(state_); }

void BufferValues::add(const torch::nn::Module& module) {
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) values_.emplace_back(buffer, buffer.detach().clone());
  }
}

void BufferValues::keep_changed() {
  std::erase_if(values_, [](const auto& v) { return at::equal(v.first.detach(), v.second); });
}

void BufferValues::write() const {
  for (const auto& [buffer, value] : values_) buffer.variable_data().copy_(value);
}

}  // namespace troika

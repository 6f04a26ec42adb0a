// What a forward may change beside its outputs, kept and put back by those who run one more forward than a
// training step has: torch's default generator, and the buffers of modules. Threading: on the forward's
// thread; the generator has its own lock, but others may draw from it meanwhile.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace troika {

/// The state of torch's default generator.
at::Tensor generator_state();

/// Puts torch's default generator back at its end, whatever happens.
class GeneratorKeeper {
 public:
  GeneratorKeeper() : state_(generator_state()) {}
  /// It begins in another state.
  explicit GeneratorKeeper(const at::Tensor& begins_in);
  GeneratorKeeper(const GeneratorKeeper&) = delete;
  GeneratorKeeper& operator=(const GeneratorKeeper&) = delete;
  ~GeneratorKeeper();

 private:
  at::Tensor state_;
};

/// Buffers and their numbers. They are written past autograd's version counter, which is about what people
/// write.
class BufferValues {
 public:
  void add(const torch::nn::Module& module);
  /// Forgets those that are still as they were.
  void keep_changed();
  void write() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> values_;
};

/// Puts them back at its end, whatever happens.
class BufferKeeper {
 public:
  explicit BufferKeeper(BufferValues values) : values_(std::move(values)) {}
  BufferKeeper(const BufferKeeper&) = delete;
  BufferKeeper& operator=(const BufferKeeper&) = delete;
  ~BufferKeeper() { values_.write(); }

 private:
  BufferValues values_;
};

}  // namespace troika

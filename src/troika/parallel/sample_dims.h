// Which dimension of a tensor holds the samples, for tensors that go from stage to stage: layers may turn
// them as they like, and a stage that draws noise can't see it from sizes (with as many time steps as samples
// they are the same either way). So the stage before finds it by one trial on a few samples, and says it with
// what it sends. Beside the trials of noise_plan.cc. Threading: a scope is of its thread; the rest is pure.
#pragma once

#include <vector>

#include "troika/parallel/model.h"

namespace troika {

constexpr int kNoSamples = -1;       // the same for all samples, such as a mask over time
constexpr int kUnknownSamples = -2;  // several dimensions changed, or one that holds something else, too

/// By tensor: a dimension, or one of the above.
using SampleDims = std::vector<int>;

/// While there is one, the model's inputs on this thread have their samples there. Without one, or if it is
/// empty, they are in dimension 0 of those that have as many rows as there are samples.
class InputDims {
 public:
  explicit InputDims(const SampleDims& dims);  // outlives it
  InputDims(const InputDims&) = delete;
  InputDims& operator=(const InputDims&) = delete;
  ~InputDims();

 private:
  const SampleDims* before_;
};

/// Of `outputs`, which model.forward(inputs) gave. Needs a StepScope. Unknown for all of them if the model
/// can't run on a few samples, or an input's is.
SampleDims find_output_dims(const Model& model, const Tensors& inputs, const Tensors& outputs);

}  // namespace troika

// One list of layers, whole and split over tensor ranks: outputs, the input's gradient, every parameter's,
// and buffers.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <map>
#include <mutex>

#include "support/small_models.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/step_context.h"
#include "troika/parallel/tensor/slices.h"
#include "troika/parallel/tensor/tensor_plan.h"

namespace troika::test {

struct Outcome {
  Tensors outputs, input_gradients;
  std::map<std::string, at::Tensor> gradients;  // and what buffers are afterwards (running statistics)
  TensorPlan plan;
  std::vector<int64_t> payload_bytes;  // by rank
};

inline at::Tensor numbers(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kDouble) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble)).to(dtype);
}

inline Outcome outcome_of(const Model& model, const Tensors& inputs, int64_t samples) {
  Outcome outcome;
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone());
    if (input.is_floating_point()) leaves.back().requires_grad_(true);
  }
  StepContext context;
  context.seed = 5;
  context.step = 1;
  context.samples = {0, samples};
  const StepScope scope(context);
  outcome.outputs = model.forward(leaves);
  const at::Tensor& out = outcome.outputs.at(0);
  out.mul(numbers(out.sizes(), 11, out.scalar_type())).sum().backward();
  model.add_tied_gradients();
  for (const at::Tensor& leaf : leaves) outcome.input_gradients.push_back(leaf.grad());
  for (const NamedTensor& p : model.parameters()) outcome.gradients[p.name] = p.tensor.grad();
  for (const NamedTensor& other : model.others()) {
    if (other.tensor.is_floating_point()) outcome.gradients[other.name] = other.tensor.clone();
  }
  return outcome;
}

inline Outcome run_whole(const std::vector<Layer>& layers, const Tensors& inputs, int64_t samples,
                         at::ScalarType dtype) {
  Model model(layers, 3, dtype);
  model.share_ties();
  return outcome_of(model, inputs, samples);
}

/// Every rank has the same outputs and gradients of the inputs, bit for bit; gradients of slices are put
/// together.
inline Outcome run_split(const std::vector<Layer>& layers, const Tensors& inputs, int64_t samples,
                         at::ScalarType dtype, int ranks, const SplitChoices& choices = {}) {
  Outcome first;
  std::mutex mutex;
  std::vector<int64_t> payload(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, {}, [&](Communicator& communicator) {
    at::set_num_threads(1);
    TensorAxis axis(communicator);
    const TensorPlan plan = plan_tensor(layers, ranks, choices);
    Model model(layers, 3, dtype, {}, {}, {&axis, &plan, 0});
    model.share_ties();
    Outcome outcome = outcome_of(model, inputs, samples);
    payload[static_cast<size_t>(communicator.rank())] = axis.payload_bytes();
    std::vector<NamedTensor> gradients;
    for (const auto& [name, gradient] : outcome.gradients) {
      ASSERT_TRUE(gradient.defined()) << name;
      gradients.push_back({name, gradient});
    }
    for (const NamedTensor& whole : in_whole(model.cuts(), axis, gradients, true))
      outcome.gradients[whole.name] = whole.tensor;
    outcome.plan = plan;
    communicator.barrier();
    if (communicator.rank() == 0) first = outcome;
    communicator.barrier();
    const std::scoped_lock lock(mutex);
    EXPECT_TRUE(bitwise_equal(outcome.outputs, first.outputs)) << "rank " << communicator.rank();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!first.input_gradients[i].defined()) continue;
      EXPECT_TRUE(bitwise_equal({outcome.input_gradients[i]}, {first.input_gradients[i]}))
          << "rank " << communicator.rank();
    }
    for (const auto& [name, gradient] : first.gradients)
      EXPECT_TRUE(bitwise_equal({outcome.gradients.at(name)}, {gradient})) << name;
  });
  first.payload_bytes = payload;
  return first;
}

inline void expect_close(const Outcome& split, const Outcome& whole, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(split.outputs.size(), whole.outputs.size());
  EXPECT_LE(relative_difference(split.outputs, whole.outputs), tolerance) << what << ": outputs";
  for (size_t i = 0; i < whole.input_gradients.size(); ++i) {
    if (!whole.input_gradients[i].defined()) continue;
    EXPECT_LE(relative_difference({split.input_gradients[i]}, {whole.input_gradients[i]}), tolerance)
        << what << ": gradient of input " << i;
  }
  ASSERT_EQ(split.gradients.size(), whole.gradients.size()) << what;
  for (const auto& [name, gradient] : whole.gradients) {
    const at::Tensor& other = split.gradients.at(name);
    ASSERT_EQ(other.sizes(), gradient.sizes()) << what << ": " << name;
    EXPECT_LE(relative_difference({other}, {gradient}), tolerance) << what << ": " << name;
  }
}

/// In float64, where a bug can't hide in rounding, and in float32, within `float_tolerance` of the largest
/// number: sums over slices are taken in another order than the whole product takes them.
inline void expect_parity(const std::string& what, const std::vector<Layer>& layers, const Tensors& inputs,
                          double float_tolerance, const SplitChoices& choices = {}) {
  const int64_t samples = inputs.at(0).size(0);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    Tensors typed;
    for (const at::Tensor& input : inputs)
      typed.push_back(input.is_floating_point() ? input.to(dtype) : input);
    const Outcome whole = run_whole(layers, typed, samples, dtype);
    for (const int ranks : {1, 2, 3, 4}) {
      const auto name = what + " on " + std::to_string(ranks);
      expect_close(run_split(layers, typed, samples, dtype, ranks, choices), whole,
                   dtype == at::kDouble ? 1e-12 : float_tolerance, name);
    }
  }
}

}  // namespace troika::test

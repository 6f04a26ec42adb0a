// Small models, data and losses for tests of training. Everything is a pure function of its arguments.
#pragma once

#include <string>
#include <vector>

#include "troika/base/split.h"
#include "troika/parallel/replica.h"

namespace troika::test {

struct SmallModel {
  std::string name;
  std::vector<Layer> layers;
  int inputs = 1;  // tensors
};

constexpr int64_t kFeatures = 5;

/// mlp, unused (an mlp with a parameter that takes no part), two_inputs (a module of a user's own), reused
/// (one linear layer called twice).
std::vector<SmallModel> small_models();
SmallModel mlp(int64_t width = 7);

/// Rows of a fixed random table; sample i is the same whatever the range.
Batch rows(Range samples, int inputs = 1, at::ScalarType dtype = at::kFloat);

/// Samples [0, batch) cut into micro-batches, then over ranks (semantics.md): result[rank][micro_batch].
std::vector<std::vector<Batch>> pieces_of(int64_t batch, int ranks, int micro_batches, int inputs = 1,
                                          at::ScalarType dtype = at::kFloat, int64_t first = 0);

/// Squared error; weight = samples, or weights 0.5, 1.0, 1.5, 0.5 ... by sample.
LossValue squared_error(const Tensors& outputs, const Batch& batch);
LossValue weighted_squared_error(const Tensors& outputs, const Batch& batch);

/// Largest |x - y| over the largest |y| of all tensors; 0 for bitwise equal.
double relative_difference(const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y);
bool bitwise_equal(const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y);
std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& tensors);

}  // namespace troika::test

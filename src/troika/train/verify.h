// verify: is the parallel run equal to the serial one, on this model and this data? It sees only tensors:
// what the engine made of a step, and what the references made of it (semantics.md, "Pieces and order").
// Threading: values; verify() starts the rank threads itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troika/base/split.h"
#include "troika/parallel/replica.h"
#include "troika/train/plain.h"

namespace troika {

/// The work to verify. `batch` may be called from several threads at once.
struct VerifyWork {
  std::vector<Layer> layers;
  Loss loss;
  ReplicaOptions options;  // dtype is the recipe's precision
  int ranks = 2;           // of the data axis; options.mesh says the other axes
  int micro_batches = 1;
  int threads_per_rank = 1;
  int64_t steps = 3;
  std::string schedule = {};  // its name, if there is a pipeline
  /// Samples of the global batch of a step (steps count from 0).
  std::function<int64_t(int64_t step)> batch_size;
  /// Samples [begin, end) of that global batch, floating point inputs and targets as `dtype`.
  std::function<Batch(int64_t step, Range samples, at::ScalarType dtype)> batch;
  /// Of a step's update; empty: options.optimizer's, always.
  std::function<double(int64_t step)> learning_rate = {};
};

/// The same optimizer under torch's names, without clipping.
PlainOptimizer plain_optimizer(const Optimizer& optimizer);

/// What the engine made of one step. Outer index: data rank, and within it tensor rank.
struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  std::vector<std::vector<at::Tensor>> weights_before, weights_after, buffers_before, buffers;
  std::vector<at::Tensor> gradients;  // their mean, before clipping
  std::vector<std::vector<at::Tensor>> gradients_of_tensor_ranks =
      {};  // of data rank 0, where there are several
};

/// Runs the steps of `work` and hands over each one's record before the next begins.
using Engine = std::function<void(const VerifyWork& work, at::ScalarType dtype,
                                  const std::function<void(const StepRecord&)>&)>;

/// The engine of the product: Replica on thread ranks.
void run_engine(const VerifyWork& work, at::ScalarType dtype,
                const std::function<void(const StepRecord&)>& on_step);

/// The first place that is not equal, in the order step, then loss, gradients, their norm if they are
/// clipped, weights, buffers, in model order. Step 0 is before the first update: the initial weights.
struct Difference {
  int64_t step = 0;
  std::string what;       // loss | gradients | grad_norm | weights | buffers
  std::string parameter;  // "" for the loss and the norm
  double factor = 0;      // <x, y> / <y, y>: what the engine's value is a multiple of
  std::string likely_cause;
  std::string detail = {};  // of the cause: which piece, which stage; may be empty
};

struct VerifyResult {
  std::string reference = "plain";  // of `equal`; "delayed" for asynchronous schedules
  bool equal = false;               // within `tolerance`
  bool bitwise = false;             // to the micro-batched reference, or the delayed one
  double max_abs_diff = 0, max_rel_diff = 0, tolerance = 0;
  std::optional<Difference> first_difference;  // from the plain run, else from the micro-batched reference
  int64_t losses = 0, gradients = 0, weights = 0, buffers = 0;  // how many were compared
};

/// `precision` is that of the comparison with the plain run, where products are never in bfloat16.
VerifyResult verify(const VerifyWork& work, at::ScalarType precision, const Engine& engine = run_engine);

}  // namespace troika

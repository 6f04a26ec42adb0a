// BatchNorm by groups: in training a BatchNorm normalises over groups of `batch_norm_group` consecutive
// samples of the global batch (0: the whole batch), so that its result does not depend on ranks and
// micro-batches (semantics.md, "BatchNorm"; the layer: Ioffe and Szegedy, arxiv.org/abs/1502.03167). An
// override of aten::batch_norm does it, active only inside a StepScope; outside, and in evaluation, torch's
// own runs.
//
// Running statistics get one update per group, in sample order. With a StepContext::batch_norm each group's
// mean and variance are written down there and applied at the end of the step; with null the layer takes them
// in itself, group by group.
//
// Threading: a scope and a log belong to their rank's thread; the checks are pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "troika/comm/communicator.h"
#include "troika/parallel/model.h"
#include "troika/parallel/replica.h"

namespace troika {

/// Throws UsageError, naming `layer` and group sizes that work, if a global batch of `batch` samples has
/// fewer groups than pieces (ranks x micro_batches): a group is never spread over two pieces.
void check_batch_norm_group(const std::string& layer, int64_t batch, int64_t group, int ranks,
                            int64_t micro_batches);

/// The same for the pieces that one rank gets for a step: each begins where a group begins, and none overlaps
/// the one before it. Throws UsageError naming `layer`.
void check_batch_norm_pieces(const std::string& layer, std::span<const Batch> pieces, int64_t group);

/// The first InstanceNorm that keeps running statistics, or "": they follow whole pieces, so more than one
/// piece of a batch would change them. Without them (torch's default) it needs nothing.
std::string first_tracking_instance_norm(const Model& model);

/// The layer whose forward runs on this thread: the override finds its BatchNorm modules' counters there.
class BatchNormScope {
 public:
  explicit BatchNormScope(const torch::nn::Module& module);  // which outlives it
  BatchNormScope(const BatchNormScope&) = delete;
  BatchNormScope& operator=(const BatchNormScope&) = delete;
  ~BatchNormScope();

  /// What torch says of a group of one value, in the words of who chooses groups; other texts as they are.
  std::string explain(const std::string& text) const;

 private:
  const torch::nn::Module* before_;
};

/// What one group does to running statistics.
struct BatchNormUpdate {
  at::Tensor running_mean, running_var;  // buffers of the model
  at::Tensor counter;                    // num_batches_tracked, or undefined
  bool cumulative = false;               // momentum is 1 / (groups so far), by the counter
  double momentum = 0;
  int64_t group = 0;          // in the global batch
  at::Tensor mean, variance;  // [channels], of the group; the variance is unbiased
};

/// The updates of a step, until all ranks have each other's.
class BatchNormLog {
 public:
  /// `model` outlives the log.
  explicit BatchNormLog(const Model& model) : model_(&model) {}

  /// Forgets what was recorded: a step begins, or failed.
  void clear() { records_.clear(); }

  void record(const BatchNormUpdate& update);

  /// Adds the records of the other ranks, which may have none. Throws Error, on every rank, if two ranks had
  /// the same group. Collective, if the model has buffers.
  void exchange(Communicator& communicator);

  /// Updates the running statistics, by layer in the order of calls, then of samples; forgets the records.
  void apply();

 private:
  struct Record {
    // Places in Model::others(), -1 for none: the same on every rank.
    int64_t running_mean = -1, running_var = -1, counter = -1;
    int64_t call = 0, group = 0;
    bool cumulative = false;
    double momentum = 0;
    std::vector<double> mean, variance;
  };
  int64_t place_of(const at::Tensor& buffer) const;
  std::vector<double> to_numbers() const;
  void add_from(std::span<const double> numbers);
  void put_in_order();
  void take_in(const Record& record);

  const Model* model_;
  std::vector<Record> records_;
};

}  // namespace troika

// fit: train your own torch::nn modules data-parallel on tensors in memory, in one call. The library's front
// door; examples/own_module.cc is the whole of it. Threading: call it from one thread; it starts the ranks'
// threads and returns when they are done.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "troika/parallel/replica.h"

namespace troika {

/// `of_sample(output, target)` gives each sample's loss, shape [samples] or [samples, ...] (averaged over the
/// rest). The engine adds the samples of all ranks up and divides once, so the gradient is the mean over the
/// global batch.
Loss per_sample_loss(std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> of_sample);

struct FitOptions {
  int ranks = 0;       // threads that share the work; 0: all usable cores
  int64_t batch = 64;  // the global batch: the result doesn't depend on the number of ranks
  int64_t epochs = 1;
  int64_t micro_batches = 1;  // pieces that each rank's part is computed in, to save memory
  /// Optimizer, seed, where the weights live. A model with BatchNorm on several ranks needs batch_norm_group.
  ReplicaOptions replica;
  /// Called after every epoch (from 1) with the mean loss; return false to stop.
  std::function<bool(int64_t epoch, double loss)> on_epoch;
};

struct FitResult {
  std::vector<double> losses;  // mean per epoch, each step's before its update
  Model model;                 // with the trained weights
};

/// Samples are the first dimension of every input and of the target. Every epoch visits each sample once in
/// an order that depends on (seed, epoch) alone; the last batch may be smaller. Throws UsageError for sizes
/// that don't match, or BatchNorm groups that don't fit ranks and micro-batches; Error if a rank fails or the
/// loss is not finite (step and layer named).
FitResult fit(const std::vector<Layer>& layers, const Loss& loss, const Tensors& inputs,
              const at::Tensor& target, const FitOptions& options = {});

}  // namespace troika

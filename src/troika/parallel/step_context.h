// StepContext: where in the training run a forward pass stands, so that noise and batch statistics are those
// of the serial run however the batch is cut (semantics.md, "Dropout and other noise", "BatchNorm").
//
// Threading: thread-local; a context holds on the thread that made it, from construction to destruction, and
// nests.
#pragma once

#include <cstdint>

#include "troika/base/split.h"

namespace troika {

class BatchNormLog;

struct StepContext {
  uint64_t seed = 0;
  int64_t step = 0;              // the optimizer step under way, from 1
  Range samples;                 // what the tensors' samples are in the global batch
  int64_t batch_norm_group = 0;  // samples that BatchNorm normalises together; 0: all of the piece
  BatchNormLog* batch_norm =
      nullptr;    // gets each group's statistics; null: a layer updates its own running ones
  int ranks = 1;  // of the data axis; with more than one, noise that can't be keyed by sample is refused
};

/// Sets the context of this thread. While there is one, dropout in training mode draws keyed noise. It starts
/// outside of any layer.
class StepScope {
 public:
  explicit StepScope(const StepContext& context);
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;
  ~StepScope();

 private:
  const StepContext* before_;
  uint64_t layer_before_;
  uint64_t calls_before_;
  StepContext context_;
};

/// The layer whose forward runs, by the hash of its full name; the calls of noise in it are counted from 0.
class LayerScope {
 public:
  explicit LayerScope(uint64_t name_hash);
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;
  ~LayerScope();

 private:
  uint64_t layer_before_;
  uint64_t calls_before_;
};

/// Null outside of a StepScope.
const StepContext* current_step();

/// A key for the next source of noise in this layer: hash(seed, step, layer, call number). Needs a context.
uint64_t next_noise_key();

/// How many keys this layer's forward has taken so far.
uint64_t noise_keys_taken();

}  // namespace troika

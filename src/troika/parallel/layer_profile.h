// What each layer of a model costs on a real micro-batch: seconds, and bytes that it holds for backward. The
// layers run forward and backward a few times in a copy of the model that is thrown away, so what training
// sees is left alone: weights, running statistics, torch's generator and the plans of noise.
//
// Layers run as in a stage: a step's context is set, so noise is keyed and BatchNorm keeps groups; what skips
// goes past, and a gradient comes back along each way. Between layers the graph is cut, which takes no
// memory. A tie is a parameter of its own here: its time is the same, and its owner has the bytes.
//
// Threading: runs on the calling thread, with its number of intra-op threads. Makes the process's memory
// meters.
#pragma once

#include "troika/parallel/replica.h"
#include "troika/parallel/split_backward.h"

namespace troika {

struct LayerProfile {
  std::string name;
  // Medians.
  double forward_s = 0;
  double backward_s = 0;  // both parts
  double input_s = 0;     // of a backward in two parts, if that was asked for: the two make backward_s
  double weight_s = 0;
  int64_t parameters = 0;       // numbers that are trained
  int64_t parameter_bytes = 0;  // as they lie in a flat buffer
  // Bytes that this layer has made, by one micro-batch.
  int64_t held_bytes = 0;     // once forward is done: what anybody has saved for backward
  int64_t pending_bytes = 0;  // between the two parts of backward
  int64_t output_bytes = 0;   // for the next layer, as they are
  int64_t loose_bytes =
      0;  // of those: what nobody saves. Who hands it to another stage holds it all the same
  int64_t working_bytes = 0;  // the most that one of its passes takes beyond what it begins or ends with
  SplitCounts split;          // how many of its weights' gradients can be put off
};

struct ProfileOptions {
  double seconds = 1;     // stops before that, if it has gone through the layers twice
  int rounds = 8;         // the most; the first one warms up, and its times are thrown away
  bool in_parts = false;  // times backward in two parts
};

/// `batch` is one micro-batch with at least one sample. Throws what the model and the loss throw.
std::vector<LayerProfile> profile_layers(const std::vector<Layer>& layers, const ReplicaOptions& options,
                                         const Batch& batch, const Loss& loss,
                                         const ProfileOptions& profile = {});

}  // namespace troika

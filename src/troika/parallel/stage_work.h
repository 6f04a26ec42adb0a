// What a stage keeps of one micro-batch. Internal to Stage. Threading: as Stage.
#pragma once

#include "troika/parallel/stage.h"

namespace troika {

/// All of one micro-batch that outlives a pass.
struct Stage::Work {
  Batch batch;
  int step = 0;                    // from the first one under way
  std::vector<Parcel> arrived;     // by edge in: activations
  size_t chain_inputs = 0;         // of `given`
  Tensors given;                   // what the layers read: the chain's, then the imports
  std::vector<uint8_t> needs;      // of `given`
  SampleDims dims;                 // of `given`; empty in the first stage, whose inputs are batch first
  std::vector<HandedIn> handed;    // the same in the graph
  std::vector<uint32_t> versions;  // of `given`, before a forward that is to run again
  int64_t version = -1;            // of the weights; -1: the newest at forward
  Tensors outputs;                 // the chain's, then the exports
  std::vector<uint8_t> output_needs;
  at::Tensor loss;                  // the sum over the samples, on the last stage
  double loss_sum = 0, weight = 0;  // as the chain's gradient says them, or the loss itself
  std::vector<Parcel> returned;     // by edge out: gradients
  Tensors input_gradients;          // of `given`
  std::optional<SplitBackward> split;

  bool empty() const { return batch.samples == 0; }
};

}  // namespace troika

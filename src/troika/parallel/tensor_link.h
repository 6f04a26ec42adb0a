// TensorLink: tensors from one lane of a pipeline to another. Between thread ranks what travels is a ticket:
// the tensors themselves are handed over without a copy. Between processes the tensors' bytes follow. Every
// message says what it is, and the receiver checks it: kind, stages, micro-batch, step.
//
// Threading: one object per rank, used by its thread; construction is collective over the communicator, which
// outlives it. Waiting has the communicator's deadline; sending never waits.
#pragma once

#include <memory>

#include "troika/comm/communicator.h"
#include "troika/parallel/layer.h"
#include "troika/schedule/action.h"

namespace troika {

/// What one stage gives another for one micro-batch: activations forwards, their gradients backwards.
/// Undefined tensors keep their places.
struct Parcel {
  Tensors tensors;
  std::vector<uint8_t> needs_gradient;  // of activations: whether a gradient is to come back
  std::vector<int> sample_dims;         // of activations, as in sample_dims.h
  // Of gradients along the chain: what the loss of this micro-batch was, so that every stage knows the mean.
  double loss_sum = 0;
  double weight = 0;
};

class TensorLink {
 public:
  /// The ranks of `lanes` are the pipeline's lanes. `copies`: sends bytes also where a pointer would do.
  explicit TensorLink(Communicator& lanes, bool copies = false);
  ~TensorLink();

  /// `message` is SF, SG or, between ends that agree on something else, any action that both name alike.
  void send(const Action& message, int64_t step, Parcel parcel, int to_lane);

  /// `message` is the sender's. Throws Error naming both sides if something else arrives.
  Parcel receive(const Action& message, int64_t step, int from_lane);

 private:
  struct Shelf;
  void send_bytes(const Parcel& parcel, int to_lane);
  Parcel receive_bytes(int64_t tensors, int from_lane);

  Communicator& lanes_;
  std::shared_ptr<Shelf> shelf_;  // null: bytes travel
};

}  // namespace troika

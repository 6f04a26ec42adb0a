// Data-parallel training with a planted mistake, done serially on plain tensors, to prove that verify catches
// and names it. Reaches no product code.
#pragma once

#include "troika/train/verify.h"

namespace troika {

enum class Mutation {
  none,
  sum_of_rank_means,        // forgot to divide by the ranks
  sum_of_samples,           // forgot to divide at all
  mean_of_rank_means,       // ignored that the ranks' parts differ in size
  skipped_bucket,           // the last parameters are not summed: each rank keeps its own
  lost_piece,               // the last rank's last piece never arrives
  counted_twice,            // rank 0's part is added twice
  scaled_by_micro_batches,  // divided by the number of micro-batches once more
  stale_weights,            // gradients of the step before's weights
  other_initial_weights,    // the last rank starts from another seed
  clip_by_rank,             // each rank clips its own gradient by its own norm
  decay_on_biases,          // weight decay of every parameter
  late_learning_rate,       // the rate of the step before
};

/// Plain SGD only (momentum 0).
Engine mutated_engine(Mutation mutation);

}  // namespace troika

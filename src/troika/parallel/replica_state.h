// What a resumed run needs, under names that don't depend on the mesh: "weights.<parameter>",
// "momentum.<parameter>" or "exp_avg." and "exp_avg_sq.", "optimizer_steps.<parameter>", "others.<name>".
// Threading: pure, but for the tensors that read_state writes.
#pragma once

#include <vector>

#include "troika/parallel/flat_tensors.h"
#include "troika/parallel/optimizer.h"

namespace troika {

/// Where the parts lie in a replica.
struct StateParts {
  const Optimizer& optimizer;
  const FlatBuffers& buffers;
  const std::vector<int64_t>& optimizer_steps;
  const std::vector<NamedTensor>& others;
};

std::vector<NamedTensor> copy_state(const StateParts& parts);

/// Throws Error listing what `given` lacks, has too much, or has in another shape.
void check_state(const StateParts& parts, const std::vector<NamedTensor>& given);

/// Copies `given`, which has passed check_state, into the parts; weights and moments only `with_weights`.
void read_state(const StateParts& parts, const std::vector<NamedTensor>& given, bool with_weights,
                std::vector<int64_t>& optimizer_steps);

}  // namespace troika

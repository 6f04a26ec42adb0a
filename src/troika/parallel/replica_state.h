// What a resumed run needs, under names that don't depend on the mesh: "weights.<parameter>",
// "momentum.<parameter>" or "exp_avg." and "exp_avg_sq.", "optimizer_steps.<parameter>", "others.<name>".
// Threading: pure, but for the tensors that read_state writes.
#pragma once

#include <vector>

#include "troika/parallel/flat_tensors.h"
#include "troika/parallel/optimizer.h"

namespace troika {

/// Where the parts lie in a stage.
struct StateParts {
  const Optimizer& optimizer;
  const FlatBuffers& buffers;
  const std::vector<int64_t>& optimizer_steps;
  const std::vector<NamedTensor>& others;
};

/// Everything by name, as views where there is something to view; and copies of it.
std::vector<NamedTensor> all_parts(const StateParts& parts);
std::vector<NamedTensor> copy_state(const StateParts& parts);

/// Throws Error listing what `given` lacks of `expected`, has in another shape, or has too much: what is not
/// among `names`, those of the whole model.
void check_state(const std::vector<NamedTensor>& expected, const std::vector<std::string>& names,
                 const std::vector<NamedTensor>& given);

/// Copies `given`, which has passed check_state and may hold more, into the parts; weights and moments only
/// `with_weights`.
void read_state(const StateParts& parts, const std::vector<NamedTensor>& given, bool with_weights,
                std::vector<int64_t>& optimizer_steps);

}  // namespace troika

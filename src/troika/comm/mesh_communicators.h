// The communicators of a mesh: for each rank one per axis. A value; its members are used by the rank's
// thread.
#pragma once

#include <memory>

#include "troika/base/mesh.h"
#include "troika/comm/communicator.h"

namespace troika {

/// What a rank says to its peers on each axis. Its rank in each is its coordinate on that axis; where the
/// degree is 1 it is alone.
struct MeshCommunicators {
  std::unique_ptr<Communicator> data;
  std::unique_ptr<Communicator> pipeline;
  std::unique_ptr<Communicator> tensor;
};

/// Collective over `all`, which they must not outlive. Throws UsageError if the mesh isn't of so many ranks.
MeshCommunicators split(Communicator& all, const Mesh& mesh);

}  // namespace troika

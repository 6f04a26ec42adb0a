#include "troika/comm/mesh_communicators.h"

#include <vector>

namespace troika {
namespace {

/// The ranks that differ from `at` on one axis only.
std::unique_ptr<Communicator> peers(Communicator& all, const Mesh& mesh, Coordinate at, int Coordinate::*axis,
                                    int degree) {
  std::vector<int> members;
  for (at.*axis = 0; at.*axis < degree; ++(at.*axis)) members.push_back(mesh.rank(at));
  return all.sub(members);
}

}  // namespace

MeshCommunicators split(Communicator& all, const Mesh& mesh) {
  require_ranks(mesh, all.size());
  const Coordinate at = mesh.coordinate(all.rank());
  MeshCommunicators axes;
  axes.data = peers(all, mesh, at, &Coordinate::data, mesh.data);
  axes.pipeline = peers(all, mesh, at, &Coordinate::pipeline, mesh.pipeline);
  axes.tensor = peers(all, mesh, at, &Coordinate::tensor, mesh.tensor);
  return axes;
}

}  // namespace troika

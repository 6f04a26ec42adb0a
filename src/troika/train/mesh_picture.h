// Which rank of a mesh holds which layers and which slice of them, as a small picture for people.
// Threading: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troika/base/mesh.h"

namespace troika {

/// A row for each data and pipeline coordinate, a column for each tensor one. `lane_of_stage` and `starts`
/// say where the layers are.
std::string mesh_picture(const Mesh& mesh, const std::vector<std::string>& layers,
                         const std::vector<int>& lane_of_stage, const std::vector<int64_t>& starts);

}  // namespace troika

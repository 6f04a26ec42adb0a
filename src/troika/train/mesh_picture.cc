#include "troika/train/mesh_picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "troika/schedule/partition.h"

namespace troika {
namespace {

/// "embed .. block2, norm .. head": the layers of the stages of one lane.
std::string layers_of_lane(int lane, const std::vector<std::string>& layers,
                           const std::vector<int>& lane_of_stage, const std::vector<int64_t>& starts) {
  std::vector<std::string> parts;
  for (size_t stage = 0; stage < starts.size(); ++stage) {
    if (lane_of_stage[stage] != lane) continue;
    const Range range = layers_of_stage(starts, stage, layers.size());
    const std::string &first = layers[static_cast<size_t>(range.begin)],
                      &last = layers[static_cast<size_t>(range.end) - 1];
    parts.push_back(range.size() == 1 ? first : fmt::format("{} .. {}", first, last));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string mesh_picture(const Mesh& mesh, const std::vector<std::string>& layers,
                         const std::vector<int>& lane_of_stage, const std::vector<int64_t>& starts) {
  std::vector<std::string> of_lanes;
  size_t width = std::string("layers").size();
  for (int lane = 0; lane < mesh.pipeline; ++lane) {
    of_lanes.push_back(layers_of_lane(lane, layers, lane_of_stage, starts));
    width = std::max(width, of_lanes.back().size());
  }
  std::string text = fmt::format("mesh {}\n{:<8}{:<{}}", to_string(mesh), "", "layers", width);
  for (int t = 0; t < mesh.tensor; ++t) text += mesh.tensor > 1 ? fmt::format("  slice {:<3}", t) : "";
  for (int data = 0; data < mesh.data; ++data) {
    for (int lane = 0; lane < mesh.pipeline; ++lane) {
      text += fmt::format("\n{:<8}{:<{}}", lane == 0 ? fmt::format("data {}", data) : "",
                          of_lanes[static_cast<size_t>(lane)], width);
      for (int t = 0; t < mesh.tensor; ++t) text += fmt::format("  rank {:<4}", mesh.rank({data, lane, t}));
      text.erase(text.find_last_not_of(' ') + 1);
    }
  }
  return text;
}

}  // namespace troika

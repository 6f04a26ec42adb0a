#include "troika/base/mesh.h"

#include <charconv>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

constexpr int kMostRanks = 4096;  // beyond any machine this is for; keeps the product far from overflow

}  // namespace

Coordinate Mesh::coordinate(int rank) const {
  TROIKA_ASSERT(rank >= 0 && rank < ranks(), fmt::format("rank {} of {}", rank, to_string(*this)));
  return {rank / (pipeline * tensor), rank / tensor % pipeline, rank % tensor};
}

int Mesh::rank(Coordinate at) const { return (at.data * pipeline + at.pipeline) * tensor + at.tensor; }

Mesh parse_mesh(std::string_view text) {
  Mesh mesh;
  bool seen[3] = {};
  int* const degrees[3] = {&mesh.data, &mesh.pipeline, &mesh.tensor};
  const std::vector<std::string> axes = {"data", "pipeline", "tensor"};
  for (const std::string& word : split_text(text, ',')) {
    const size_t equals = word.find('=');
    const std::string name(trim(word.substr(0, equals)));
    const size_t axis = static_cast<size_t>(std::find(axes.begin(), axes.end(), name) - axes.begin());
    if (equals == std::string::npos || axis == axes.size()) {
      fail_usage(
          "mesh \"{}\": \"{}\" is not axis=degree with axis data, pipeline or tensor{}; "
          "example: data=2,pipeline=2",
          text, word, did_you_mean(name, axes));
    }
    if (seen[axis]) fail_usage("mesh \"{}\": {} is given twice", text, name);
    seen[axis] = true;
    const std::string number(trim(word.substr(equals + 1)));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *degrees[axis]);
    if (error != std::errc() || end != number.data() + number.size() || *degrees[axis] < 1 ||
        *degrees[axis] > kMostRanks) {
      fail_usage("mesh \"{}\": {} is \"{}\", expected a whole number from 1 to {}", text, name, number,
                 kMostRanks);
    }
  }
  if (static_cast<int64_t>(mesh.data) * mesh.pipeline * mesh.tensor > kMostRanks) {
    fail_usage("mesh \"{}\": more than {} ranks", text, kMostRanks);
  }
  return mesh;
}

std::string to_string(const Mesh& mesh) {
  return fmt::format("data={},pipeline={},tensor={}", mesh.data, mesh.pipeline, mesh.tensor);
}

void require_ranks(const Mesh& mesh, int ranks) {
  if (mesh.ranks() == ranks) return;
  fail_usage(
      "mesh {} needs {} x {} x {} = {} ranks, but {} {} asked for; leave --ranks out, or make the product {}",
      to_string(mesh), mesh.data, mesh.pipeline, mesh.tensor, mesh.ranks(), ranks, ranks == 1 ? "is" : "are",
      ranks);
}

}  // namespace troika

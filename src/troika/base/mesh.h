// Mesh: the degrees of data, pipeline and tensor parallelism, and the map between a rank and its coordinate.
// A value; thread-safe as such.
#pragma once

#include <string>
#include <string_view>

namespace troika {

/// Where a rank stands on each axis.
struct Coordinate {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;
  bool operator==(const Coordinate&) const = default;
};

/// data x pipeline x tensor = number of ranks. Tensor peers are neighbours in rank order, then pipeline, then
/// data: rank = (data * pipeline_degree + pipeline) * tensor_degree + tensor.
struct Mesh {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;

  int ranks() const { return data * pipeline * tensor; }
  Coordinate coordinate(int rank) const;
  int rank(Coordinate at) const;
  bool operator==(const Mesh&) const = default;
};

/// "data=2,pipeline=2" -> Mesh; axes that are left out are 1. Throws UsageError naming the word that is
/// wrong.
Mesh parse_mesh(std::string_view text);

/// "data=2,pipeline=1,tensor=1".
std::string to_string(const Mesh& mesh);

/// Throws UsageError if the product is not `ranks`, with the arithmetic shown.
void require_ranks(const Mesh& mesh, int ranks);

}  // namespace troika

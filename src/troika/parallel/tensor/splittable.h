// Splittable: a module that can work with slices of its parameters, one slice per rank of the tensor axis.
// Who writes modules of their own derives from it beside torch::nn::Module, or puts modules in that do
// (layers.h). Threading: as the module.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troika/parallel/tensor/cut.h"
#include "troika/parallel/tensor/tensor_axis.h"

namespace troika {

/// A tensor between layers: whole on every rank, or cut along a dimension, counted from the last one (-1).
struct Spread {
  std::optional<int> dim;
  int64_t size = 0;  // of the dimension as a whole
  bool is_whole() const { return !dim; }
  bool operator==(const Spread&) const = default;
};

/// One way to split a module.
struct SplitWay {
  std::string name;             // "columns", "rows", "heads", "hidden units", ...
  Spread in, out;               // of the first tensor that comes in, and the first that goes out
  std::vector<CutTensor> cuts;  // of parameters and buffers, by their names in the module
  /// Elements that a rank hands to the communicator for each position of each sample (each token, each
  /// pixel), forward and backward together; and how many of them are for the gradient of the input.
  int64_t payload = 0;
  int64_t payload_for_input = 0;
  bool by_name_only = false;  // only if a user asks for it
};

class Splittable {
 public:
  virtual ~Splittable() = default;

  /// Those that are possible on so many ranks. None: each rank would do all of it. The first one that takes
  /// and gives whole tensors is for a module within a user's own forward.
  virtual std::vector<SplitWay> ways(int ranks) const = 0;

  /// What stands in the way of it where there are none.
  virtual std::string why_whole(int ranks) const;

  /// From now on the tensors that the way names are this rank's slices. Called once, with one of ways().
  /// `axis` outlives the module.
  virtual void split(const SplitWay& way, TensorAxis& axis) = 0;
};

/// The names of a part of a module, as the module has them.
std::vector<CutTensor> with_prefix(const std::string& prefix, std::vector<CutTensor> cuts);

/// Adds what a part of the module does in a way of its own: its cuts and its payload.
void add_part(SplitWay& all, const std::string& name, const SplitWay& part);

/// Those that take and give whole tensors.
std::vector<SplitWay> only_whole(std::vector<SplitWay> ways);

/// The usual reason why there are no ways.
std::string why_no_way(int ranks);

/// torch's dropout of a tensor that is spread so over the ranks of `axis`, which may be null if it is whole.
at::Tensor dropout_of(const at::Tensor& x, double p, bool training, const Spread& spread,
                      const TensorAxis* axis);

}  // namespace troika

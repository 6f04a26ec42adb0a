// A model's slices and the whole they belong to: norms over it, and states that don't depend on how it is
// split. Threading: collective over the axis, but for the last two.
#pragma once

#include <span>
#include <vector>

#include "troika/parallel/model.h"
#include "troika/parallel/tensor/tensor_axis.h"

namespace troika {

/// The whole tensors of a list of parameters or others, by name; those that aren't slices as they are. Tensor
/// by tensor; ranks that don't `keep` them get the list as it is.
std::vector<NamedTensor> in_whole(const Cuts& cuts, TensorAxis& axis, std::vector<NamedTensor> tensors,
                                  bool keep);

/// Sums of squares by parameter: those of slices become those of the whole.
void add_squares_of_slices(const Cuts& cuts, TensorAxis& axis, const std::vector<NamedTensor>& parameters,
                           std::span<double> squares);

/// The parts of a state (replica_state.h) have the kind before the name: what in_whole() does for them.
std::vector<NamedTensor> state_in_whole(const Cuts& cuts, TensorAxis& axis, std::vector<NamedTensor> parts,
                                        bool keep);
/// Stand-ins of the whole sizes, without memory of their own.
std::vector<NamedTensor> sizes_in_whole(const Cuts& cuts, std::vector<NamedTensor> parts);
/// The slices of this rank; tensors that have no cut stay as they are.
std::vector<NamedTensor> state_in_slices(const Cuts& cuts, const TensorAxis& axis,
                                         std::vector<NamedTensor> parts);

}  // namespace troika

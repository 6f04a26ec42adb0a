// Weights alone, under the names that PyTorch's state_dict gives them ("hidden1.weight"), in a safetensors
// file: for another program, and to begin a run with instead of random numbers.
//
// Threading: pure functions. The tensors of start_from are written, so with shared weights one rank calls it,
// between steps, or every rank calls start_state_from on its own copy of Replica::state() and loads that.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "troika/base/file.h"
#include "troika/parallel/model.h"

namespace troika {

/// Writes the file whole or not at all. Wider numbers come first, so that every tensor is aligned for readers
/// that map the file. `metadata` is free text; "format" is "pt" unless it is given, as PyTorch's tools
/// expect. Throws Error naming the file.
void write_weights(const Path& path, const std::vector<NamedTensor>& parameters,
                   const std::vector<NamedTensor>& others,
                   const std::map<std::string, std::string>& metadata);

/// Copies weights from `file` into `parameters` and `others`: a file of write_weights or of PyTorch, a
/// checkpoint, or a run's directory (its best checkpoint, else its last). float32, float64 and bfloat16 are
/// converted. Layers in `fresh_layers` keep what they have, whatever the file says of them; every other
/// tensor must be there in its shape, and the file may hold nothing else. Nothing is written unless all fits.
/// Throws UsageError for a fresh layer that isn't there, Error naming the file and all that is missing,
/// unexpected or of another shape or type, or not finite.
void start_from(const Path& file, const std::vector<std::string>& fresh_layers,
                const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& others);

/// The weights and buffers of a Replica::state(), under the model's names.
struct StateWeights {
  std::vector<NamedTensor> parameters, others;
};
StateWeights weights_of_state(const std::vector<NamedTensor>& state);

/// start_from for the weights and buffers of a Replica::state(), which load_state() then takes.
void start_state_from(const Path& file, const std::vector<std::string>& fresh_layers,
                      const std::vector<NamedTensor>& state);

}  // namespace troika

// Recompute, or activation checkpointing: a layer whose forward keeps nothing for backward but its inputs,
// and runs again when backward first needs something (Chen et al., arXiv:1604.06174). Autograd's graph stays
// the one of the first forward, only what its nodes saved is gone; so sums have the same order, backward can
// be split in two as without it, and every number is bit for bit the same: with keyed dropout, torch's own
// generator of the CPU, autocast, and buffers that forward changes (BatchNorm's statistics), which it does
// once.
//
// What has the memory of an input or of a parameter costs nothing and is kept as it is: a linear layer by
// itself never runs again. Within another such layer recompute does nothing. What a user's own
// torch::autograd::Function puts into saved_data rather than save_for_backward stays.
//
// Threading: forward and backward of one graph on one thread. Layers that draw from torch's generator draw
// the same again only if no other thread draws from it meanwhile.
#pragma once

#include <string>
#include <vector>

#include "troika/parallel/layer.h"

namespace troika {

/// The same layer, recomputed. Backward throws UsageError naming it if the forward wrote into an input,
/// something wrote into an input or a parameter since, or the second forward saves other tensors than the
/// first.
Layer recomputed(Layer layer);

/// The same for a piece of any program: what forward(inputs) gives, where `module` has the parameters and
/// buffers that it uses, and `name` is for messages.
Tensors recompute(const std::string& name, const torch::nn::Module& module,
                  const std::function<Tensors(const Tensors&)>& forward, const Tensors& inputs);

/// While there is one, layers of this thread keep everything, as if nothing were recomputed: for what a
/// recomputed run is compared with.
class NoRecompute {
 public:
  NoRecompute();
  NoRecompute(const NoRecompute&) = delete;
  NoRecompute& operator=(const NoRecompute&) = delete;
  ~NoRecompute();

 private:
  bool before_;
};

/// Those layers recomputed whose names match a pattern, as a shell matches files (fnmatch(3)). Throws
/// UsageError for a pattern that no layer matches; `key` is where it came from.
std::vector<Layer> recompute_matching(std::vector<Layer> layers, const std::vector<std::string>& patterns,
                                      const std::string& key);

}  // namespace troika

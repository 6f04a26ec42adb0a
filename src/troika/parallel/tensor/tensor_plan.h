// TensorPlan: how each layer of a model is split over the tensor axis. It leaves as few weight matrices whole
// as the rules allow, and of the plans that do so it is the one whose ranks hand each other the fewest
// elements (dynamic programming over the chain: what goes from one layer to the next is whole, or
// in slices).
//
// Threading: a value; planning is a pure function of layers and ranks, so every rank makes the same plan.
#pragma once

#include <string>
#include <vector>

#include "troika/parallel/layer.h"
#include "troika/parallel/tensor/split_choices.h"
#include "troika/parallel/tensor/splittable.h"

namespace troika {

struct LayerSplit {
  std::string layer, kind;
  std::optional<SplitWay> way;  // none: each rank does all of it
  bool is_elementwise = false;  // and what comes in is spread as before it
  std::string why_whole;
  Spread in, out;                // of the chain's first tensor
  bool joins = false;            // slices that come from the layer before are put together first
  int64_t weights = 0;           // numbers in the parameters of the whole layer
  int64_t weights_per_rank = 0;  // the most that a rank has
  int64_t payload = 0;           // as SplitWay's, joins included
};

struct TensorPlan {
  int ranks = 1;
  std::vector<LayerSplit> layers;  // as the model's

  /// The chain's tensor before layer `index`; after the last one: index = layers.size().
  Spread before(size_t index) const { return index == 0 ? Spread{} : layers[index - 1].out; }
};

/// Builds each layer once, to look at it, and drops it. Throws UsageError for a choice that fits no layer or
/// names a way that the layer doesn't have, and for tied parameters that can't be cut alike.
TensorPlan plan_tensor(const std::vector<Layer>& layers, int ranks, const SplitChoices& choices = {});

/// The same for layers that are there, one after the other, without choices.
using NamedLayer = std::pair<std::string, LiveLayer>;
TensorPlan plan_chain(const std::vector<NamedLayer>& layers, int ranks);

/// For people: layer, split, weights per rank, payload per position.
std::string table_of(const TensorPlan& plan);

}  // namespace troika

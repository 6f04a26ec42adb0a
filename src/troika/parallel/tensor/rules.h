// Rules: which layers can be split over the tensor axis, and how. A layer is what one entry of the list of
// layers builds: a module that is Splittable, one of torch's for which there is a rule here, or one with
// Splittable parts. Any other is whole on every rank. A new rule is a line in the table of rules.cc.
// Threading: pure functions.
#pragma once

#include <string>
#include <vector>

#include "troika/parallel/layer.h"
#include "troika/parallel/tensor/splittable.h"

namespace troika {

/// How a layer may be split on so many ranks.
struct SplitOffer {
  std::string kind;             // "Linear", "LSTM", ...
  std::vector<SplitWay> ways;   // none: it is whole
  bool is_elementwise = false;  // it does the same with a slice as with the whole
  std::string why_whole;        // if there are no ways
};
SplitOffer offer_of(const LiveLayer& layer, int ranks);

/// Keeps this rank's slices of the layer's tensors, and makes forward work with them. `way` is one of the
/// offer's. `axis` outlives the layer.
void split_layer(LiveLayer& layer, const SplitWay& way, TensorAxis& axis);

/// The same without cutting the tensors: somebody else does.
void split_forward(LiveLayer& layer, const SplitWay& way, TensorAxis& axis);

}  // namespace troika

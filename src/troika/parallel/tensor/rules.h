// Rules: which layers can be split over the tensor axis, and how. A layer is what one entry of the list of
// layers builds: a module that is Splittable, one of torch's for which there is a rule here, or one with
// Splittable parts. Any other is whole on every rank. A new rule is a line in the table of rules.cc.
// Threading: pure functions.
#pragma once

#include <string>
#include <vector>

#include "troika/parallel/layer.h"
#include "troika/parallel/tensor/splittable.h"
#include "troika/parallel/tensor/tensor_plan.h"

namespace troika {

/// How a layer may be split on so many ranks.
struct SplitOffer {
  std::string kind;             // "Linear", "LSTM", ...
  std::vector<SplitWay> ways;   // none: it is whole
  bool is_elementwise = false;  // it does the same with a slice as with the whole
  std::string why_whole;        // if there are no ways
};
SplitOffer offer_of(const LiveLayer& layer, int ranks);

/// Makes the layer's forward work as planned, with slices where they come or where its tensors are slices;
/// the tensors themselves are cut_in_place(). `axis` outlives the layer.
void follow_plan(LiveLayer& layer, const LayerSplit& split, TensorAxis& axis);

/// Keeps this rank's slices of a module's tensors, by their names in it.
void cut_in_place(torch::nn::Module& module, const std::vector<CutTensor>& cuts, const TensorAxis& axis);

/// Before layer `index` of a plan, or behind the last one: puts the chain's first tensor together if it comes
/// in slices and is wanted whole.
void join_as_planned(const TensorPlan& plan, size_t index, Tensors& values, TensorAxis& axis);

}  // namespace troika

// What a model does on the tensor axis: it keeps slices of its layers, and puts slices of activations
// together where the next layer wants them whole.
#include <torch/nn/module.h>

#include "troika/parallel/model.h"
#include "troika/parallel/tensor/rules.h"
#include "troika/parallel/wiring.h"

namespace troika {

const LayerSplit* Model::split_of(size_t index) const {
  return slices_.axis == nullptr ? nullptr : &slices_.plan->layers.at(slices_.first_layer + index);
}

void Model::keep_slices(const std::string& name, LiveLayer& live) {
  const LayerSplit* split = split_of(layers_.size());
  if (split == nullptr) return;
  follow_plan(live, *split, *slices_.axis);
  if (!split->way) return;
  cut_in_place(*live.module, split->way->cuts, *slices_.axis);
  for (const CutTensor& cut : split->way->cuts) cuts_.emplace(full_name(name, cut.name), cut.cut);
}

// The outputs of the whole model are whole; between stages slices go on as they are.
void Model::join_slices_before(size_t index, Tensors& values) const {
  if (slices_.axis == nullptr || values.empty()) return;
  const size_t place = slices_.first_layer + index;
  if (index == layers_.size() && place < slices_.plan->layers.size()) return;
  join_as_planned(*slices_.plan, place, values, *slices_.axis);
}

}  // namespace troika

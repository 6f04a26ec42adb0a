// What a model does on the tensor axis: it keeps slices of its layers, and puts slices of activations
// together where the next layer wants them whole.
#include <torch/nn/module.h>

#include "troika/parallel/model.h"
#include "troika/parallel/noise_slice.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/parallel/tensor/rules.h"
#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/parallel/wiring.h"

namespace troika {

const LayerSplit* Model::split_of(size_t index) const {
  return slices_.axis == nullptr ? nullptr : &slices_.plan->layers.at(slices_.first_layer + index);
}

void Model::keep_slices(const std::string& name, LiveLayer& live) {
  const LayerSplit* split = split_of(layers_.size());
  if (split == nullptr) return;
  TensorAxis& axis = *slices_.axis;
  if (split->way) {
    split_layer(live, *split->way, axis);
    for (const CutTensor& cut : split->way->cuts) cuts_.emplace(full_name(name, cut.name), cut.cut);
  } else if (split->is_elementwise && !split->in.is_whole()) {
    live.forward = [forward = live.forward, &axis, in = split->in](const Tensors& inputs) {
      const NoiseSliceScope slice(*in.dim, axis.my_share(in.size), in.size);
      return forward(inputs);
    };
  }
}

// The outputs of the whole model are whole; between stages slices go on as they are.
void Model::join_slices_before(size_t index, Tensors& values) const {
  if (slices_.axis == nullptr || values.empty()) return;
  const size_t place = slices_.first_layer + index;
  const Spread before = slices_.plan->before(place);
  const bool is_end = place == slices_.plan->layers.size();
  const bool joins = is_end || (index < layers_.size() && slices_.plan->layers[place].joins);
  if (before.is_whole() || !joins) return;
  values[0] = join_slices(values[0], *before.dim, before.size, *slices_.axis);
}

}  // namespace troika

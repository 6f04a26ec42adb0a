// The rule of torch::nn::Sequential: a chain of layers of its own, whole in and out, planned as a model's is.
#include <torch/nn/modules/container/sequential.h>

#include "troika/parallel/noise_slice.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/parallel/tensor/rules.h"
#include "troika/parallel/tensor/tensor_plan.h"
#include "troika/parallel/tensor/torch_rules.h"

namespace troika {
namespace {

std::vector<NamedLayer> links_of(const torch::nn::Module& module) {
  const auto& chain = dynamic_cast<const torch::nn::SequentialImpl&>(module);
  const std::vector<std::string> names = chain.named_children().keys();
  std::vector<NamedLayer> links;
  for (const torch::nn::AnyModule& link : chain) {
    const auto call = [link = torch::nn::AnyModule(link)](const Tensors& in) mutable -> Tensors {
      return {link.any_forward(in.at(0)).get<at::Tensor>()};
    };
    links.emplace_back(names[links.size()], LiveLayer{link.ptr(), call, 1, true});
  }
  return links;
}

}  // namespace

std::vector<SplitWay> chain_ways(const torch::nn::Module& module, int ranks) {
  const TensorPlan plan = plan_chain(links_of(module), ranks);
  SplitWay way{"chain", {}, {}, {}, 0, 0};
  for (const LayerSplit& link : plan.layers) {
    way.payload += link.payload;
    if (!link.way) continue;
    for (CutTensor& cut : with_prefix(link.layer, link.way->cuts)) way.cuts.push_back(std::move(cut));
  }
  if (way.cuts.empty()) return {};
  // The plan leaves out what the first layer of a model needs not do.
  if (plan.layers[0].way) way.payload_for_input = plan.layers[0].way->payload_for_input;
  way.payload += way.payload_for_input;
  return {way};
}

ForwardFunction split_chain_forward(const ModulePointer& module, const SplitWay&, TensorAxis& axis) {
  std::vector<NamedLayer> links = links_of(*module);
  const TensorPlan plan = plan_chain(links, axis.size());
  for (size_t i = 0; i < links.size(); ++i) {
    if (plan.layers[i].way) split_forward(links[i].second, *plan.layers[i].way, axis);
  }
  return [links, plan, &axis](const Tensors& in) -> Tensors {
    Tensors x{in.at(0)};
    const auto join = [&](const Spread& spread) {
      if (!spread.is_whole()) x[0] = join_slices(x[0], *spread.dim, spread.size, axis);
    };
    for (size_t i = 0; i < links.size(); ++i) {
      const LayerSplit& split = plan.layers[i];
      if (split.joins) join(plan.before(i));
      std::optional<NoiseSliceScope> slice;
      if (split.is_elementwise && !split.in.is_whole())
        slice.emplace(*split.in.dim, axis.my_share(split.in.size), split.in.size);
      x = links[i].second.forward(x);
    }
    join(plan.before(links.size()));
    return x;
  };
}

}  // namespace troika

// The rule of torch::nn::Sequential: a chain of layers of its own, whole in and out, planned as a model's is.
#include <torch/nn/modules/container/sequential.h>

#include "troika/parallel/tensor/rules.h"
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
  int64_t payload = 0;  // joins included
  for (const LayerSplit& link : plan.layers) {
    payload += link.payload;
    if (link.way) add_part(way, link.layer, *link.way);
  }
  if (way.cuts.empty()) return {};
  // The plan leaves out what the first layer of a model needs not do.
  if (plan.layers[0].way) way.payload_for_input = plan.layers[0].way->payload_for_input;
  way.payload = payload + way.payload_for_input;
  return {way};
}

ForwardFunction split_chain_forward(const ModulePointer& module, const SplitWay&, TensorAxis& axis) {
  std::vector<NamedLayer> links = links_of(*module);
  const TensorPlan plan = plan_chain(links, axis.size());
  for (size_t i = 0; i < links.size(); ++i) follow_plan(links[i].second, plan.layers[i], axis);
  return [links, plan, &axis](const Tensors& in) -> Tensors {
    Tensors x{in.at(0)};
    for (size_t i = 0; i < links.size(); ++i) {
      join_as_planned(plan, i, x, axis);
      x = links[i].second.forward(x);
    }
    join_as_planned(plan, links.size(), x, axis);
    return x;
  };
}

}  // namespace troika

#include "troika/parallel/tensor/rules.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <typeinfo>

#include "troika/base/error.h"
#include "troika/parallel/noise_slice.h"
#include "troika/parallel/tensor/layers.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/parallel/tensor/torch_rules.h"

namespace troika {
namespace {

using torch::nn::Module;

/// A derived class may do anything in a forward of its own.
template <typename... Modules>
bool is_any_of(const Module& module) {
  return (... || (typeid(module) == typeid(Modules)));
}

bool is_elementwise(const Module& module) {
  using namespace torch::nn;
  return is_any_of<ReLUImpl, GELUImpl, SiLUImpl, TanhImpl, SigmoidImpl, ELUImpl, LeakyReLUImpl, SoftplusImpl,
                   MishImpl, ReLU6Impl, HardtanhImpl, IdentityImpl, DropoutImpl>(module);
}

struct Rule {
  const char* kind;
  bool (*matches)(const Module&);
  std::vector<SplitWay> (*ways)(const Module&, int ranks);
  std::function<Tensors(const Tensors&)> (*forward)(const std::shared_ptr<Module>&, const SplitWay&,
                                                    TensorAxis&);
};

constexpr Rule kRules[] = {
    {"Linear", is_any_of<torch::nn::LinearImpl>, linear_ways, split_linear_forward},
    {"Embedding", is_any_of<torch::nn::EmbeddingImpl>, embedding_ways, split_embedding_forward},
    {"Conv", is_any_of<torch::nn::Conv1dImpl, torch::nn::Conv2dImpl, torch::nn::Conv3dImpl>, convolution_ways,
     split_convolution_forward},
    {"BatchNorm",
     is_any_of<torch::nn::BatchNorm1dImpl, torch::nn::BatchNorm2dImpl, torch::nn::BatchNorm3dImpl>,
     batch_norm_ways, split_batch_norm_forward},
    {"Sequential", is_any_of<torch::nn::SequentialImpl>, chain_ways, split_chain_forward},
    {"GroupNorm", is_any_of<torch::nn::GroupNormImpl>, group_norm_ways, split_group_norm_forward},
};

const Rule* rule_for(const Module& module) {
  for (const Rule& rule : kRules) {
    if (rule.matches(module)) return &rule;
  }
  return nullptr;
}

/// Of a way for a module that stands in a user's own forward: what goes in and out is what the user's code
/// expects, whole, or slices where it says so (ColumnLinear, RowLinear).
std::optional<SplitWay> way_within(const Splittable& part, int ranks) {
  const std::vector<SplitWay> ways = part.ways(ranks);
  if (ways.size() == 1) return ways[0];
  for (const SplitWay& way : ways) {
    if (way.in.is_whole() && way.out.is_whole()) return way;
  }
  return std::nullopt;
}

struct Part {
  std::string name;
  Splittable* module;
};

/// The outermost ones.
std::vector<Part> splittable_parts(const Module& module) {
  std::vector<Part> parts;
  for (const auto& item : module.named_children()) {
    if (auto* part = dynamic_cast<Splittable*>(item.value().get())) {
      parts.push_back({item.key(), part});
      continue;
    }
    for (const Part& inner : splittable_parts(*item.value())) {
      parts.push_back({item.key() + "." + inner.name, inner.module});
    }
  }
  return parts;
}

std::string why_no_rule(const Module& module) {
  if (module.parameters().empty()) return "it has no weights";
  if (dynamic_cast<const torch::nn::LayerNormImpl*>(&module) != nullptr) return "it needs whole rows";
  return "no rule for it: build it from troika::Linear and its like, or derive it from Splittable";
}

constexpr char kParts[] = "parts";

/// All parts at once: a ColumnLinear without its RowLinear would be wrong.
SplitOffer offer_of_parts(const Module& module, int ranks) {
  SplitOffer offer{module.name(), {}, false, {}};
  const std::vector<Part> parts = splittable_parts(module);
  SplitWay all{kParts, {}, {}, {}, 0, 0};
  for (const Part& part : parts) {
    const auto way = way_within(*part.module, ranks);
    if (!way) {
      offer.why_whole = fmt::format("its \"{}\" can't be split over {} ranks", part.name, ranks);
      return offer;
    }
    add_part(all, part.name, *way);
  }
  if (parts.empty()) {
    offer.why_whole = why_no_rule(module);
  } else {
    offer.ways.push_back(std::move(all));
  }
  return offer;
}

}  // namespace

SplitOffer offer_of(const LiveLayer& layer, int ranks) {
  const Module& module = *layer.module;
  SplitOffer offer{module.name(), {}, false, {}};
  const Rule* rule = rule_for(module);
  if (const auto* own = dynamic_cast<const Splittable*>(&module)) {
    offer.ways = own->ways(ranks);
    if (offer.ways.empty()) offer.why_whole = own->why_whole(ranks);
  } else if (rule != nullptr && layer.calls_module) {
    offer.kind = rule->kind;
    offer.ways = rule->ways(module, ranks);
  } else if (is_elementwise(module) && layer.calls_module) {
    offer.is_elementwise = true;
    return offer;
  } else {
    return offer_of_parts(module, ranks);
  }
  if (!layer.calls_module) offer.ways = only_whole(std::move(offer.ways));
  if (offer.ways.empty() && offer.why_whole.empty()) offer.why_whole = why_no_way(ranks);
  return offer;
}

void follow_plan(LiveLayer& layer, const LayerSplit& split, TensorAxis& axis) {
  if (!split.way) {
    if (!split.is_elementwise || split.in.is_whole()) return;
    layer.forward = [forward = layer.forward, &axis, in = split.in](const Tensors& inputs) {
      const NoiseSliceScope slice(*in.dim, axis.my_share(in.size), in.size);
      return forward(inputs);
    };
    return;
  }
  Module& module = *layer.module;
  if (auto* own = dynamic_cast<Splittable*>(&module)) {
    own->split(*split.way, axis);
  } else if (const Rule* rule = rule_for(module)) {
    layer.forward = rule->forward(layer.module, *split.way, axis);
  } else {
    for (const Part& part : splittable_parts(module))
      part.module->split(*way_within(*part.module, axis.size()), axis);
  }
}

void cut_in_place(Module& module, const std::vector<CutTensor>& cuts, const TensorAxis& axis) {
  const at::NoGradGuard no_grad;
  auto parameters = module.named_parameters();
  auto buffers = module.named_buffers();
  for (const CutTensor& cut : cuts) {
    at::Tensor* tensor = parameters.find(cut.name);
    if (tensor == nullptr) tensor = buffers.find(cut.name);
    TROIKA_ASSERT(tensor != nullptr, cut.name);
    tensor->set_data(slice_of(*tensor, cut.cut, axis.size(), axis.rank()));
  }
}

void join_as_planned(const TensorPlan& plan, size_t index, Tensors& values, TensorAxis& axis) {
  const Spread before = plan.before(index);
  const bool joins = index == plan.layers.size() || plan.layers[index].joins;
  if (joins && !before.is_whole()) values[0] = join_slices(values[0], *before.dim, before.size, axis);
}

}  // namespace troika

#include "troika/parallel/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"
#include "troika/parallel/batch_norm.h"
#include "troika/parallel/flat_tensors.h"
#include "troika/parallel/forward_state.h"
#include "troika/parallel/torch_errors.h"
#include "troika/parallel/wiring.h"

namespace troika {
namespace {

// Torch's default generator is one per process, and so is the order in which factories draw from it.
std::mutex& factory_mutex() {
  static std::mutex mutex;
  return mutex;
}

void seed_default_generator(uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

/// Two models must not train one module. Call it under the lock.
void refuse_module_in_use(const std::shared_ptr<torch::nn::Module>& module, const std::string& layer) {
  static std::vector<std::weak_ptr<torch::nn::Module>> in_use;
  std::erase_if(in_use, [](const auto& other) { return other.expired(); });
  for (const auto& other : in_use) {
    if (other.lock() == module) {
      fail_usage(
          "the factory of layer \"{}\" gave a module that another model or layer has already: it must make a "
          "new module each time it is called",
          layer);
    }
  }
  in_use.push_back(module);
}

template <typename Named>
bool contains(const std::vector<Named>& list, const at::Tensor& tensor) {
  return std::any_of(list.begin(), list.end(), [&](const Named& n) { return n.tensor.is_same(tensor); });
}

void refuse_repeated_names(const std::vector<NamedTensor>& parameters) {
  std::unordered_set<std::string> names;
  for (const NamedTensor& parameter : parameters) {
    if (!names.insert(parameter.name).second) {
      fail_usage("two parameters are called \"{}\": rename one of their layers", parameter.name);
    }
  }
}

/// `owner` is null if its layer has no such parameter.
void check_tie(const TiedUse& use, const NamedTensor* owner, const std::vector<NamedTensor>& parameters) {
  if (owner == nullptr) {
    std::vector<std::string> names;
    for (const NamedTensor& parameter : parameters) names.push_back(parameter.name);
    fail_usage("\"{}\" is tied to \"{}\", and no earlier layer trains a parameter of that name{}", use.name,
               use.owner, did_you_mean(use.owner, names));
  }
  if (use.tensor.sizes() != owner->tensor.sizes() ||
      use.tensor.scalar_type() != owner->tensor.scalar_type()) {
    const auto text = [](const at::Tensor& t) {
      return fmt::format("{} [{}]", c10::toString(t.scalar_type()), fmt::join(t.sizes(), ", "));
    };
    fail_usage("\"{}\" is tied to \"{}\", but the one is {} and the other {}: one tensor can't be both",
               use.name, use.owner, text(use.tensor), text(owner->tensor));
  }
}

/// Skips that have been put and not yet taken by all who get them.
class SkipsUnderWay {
 public:
  explicit SkipsUnderWay(const std::unordered_map<std::string, int64_t>& uses) : uses_(uses) {}

  /// The last of `tensors`, one for each name, leave it.
  void put(const std::vector<std::string>& names, Tensors& tensors) {
    const size_t first = tensors.size() - names.size();
    for (size_t i = 0; i < names.size(); ++i) {
      const auto uses = uses_.find(names[i]);
      if (uses == uses_.end()) continue;
      Held& held = held_[names[i]];
      held.tensors.push_back(std::move(tensors[first + i]));
      held.uses_left = uses->second;
    }
    tensors.resize(first);
  }

  /// Behind `tensors`. At its last use a skip is dropped here. One that was put once for each use, as a
  /// tensor of its own, is got in that order.
  void get(const std::vector<std::string>& names, Tensors& tensors) {
    for (const std::string& name : names) {
      const auto at = held_.find(name);
      Held& held = at->second;
      tensors.push_back(held.tensors[std::min(held.got++, held.tensors.size() - 1)]);
      if (--held.uses_left == 0) held_.erase(at);
    }
  }

 private:
  struct Held {
    Tensors tensors;
    size_t got = 0;
    int64_t uses_left = 0;
  };
  const std::unordered_map<std::string, int64_t>& uses_;
  std::unordered_map<std::string, Held> held_;
};

/// Further tensors of the chain may be left unread (an empty one of categories), but who says get wants it.
void check_gets_are_read(const std::pair<std::string, LiveLayer>& layer, const std::vector<std::string>& gets,
                         size_t given) {
  const size_t takes = layer.second.takes;
  if (gets.empty() || takes == 0 || given <= takes) return;
  fail(
      "layer \"{}\", forward: it gets {}, {} tensors with those of the layer before it, but takes only {}: "
      "let "
      "its forward take and return Tensors",
      layer.first, fmt::join(gets, ", "), given, takes);
}

}  // namespace

LiveLayer build_layer(const Layer& layer, uint64_t seed) {
  const std::lock_guard lock(factory_mutex());
  seed_default_generator(hash64(layer.name, seed));
  LiveLayer live = layer.make();
  if (live.module == nullptr || !live.forward) {
    fail_usage("the factory of layer \"{}\" gave no {}", layer.name,
               live.module ? "forward function" : "module");
  }
  refuse_module_in_use(live.module, layer.name);
  return live;
}

Model::Model(const std::vector<Layer>& layers, uint64_t seed, at::ScalarType dtype, const OnLayer& on_layer,
             Border border, ModelSlices slices)
    : border_(std::move(border)), slices_(slices) {
  check_layers(layers, border_);
  for (const std::string& skip : border_.exports) ++uses_[skip];
  for (const Layer& layer : layers) {
    skips_.push_back({layer.puts, layer.gets});
    for (const std::string& skip : layer.gets) ++uses_[skip];
  }
  for (const Layer& layer : layers) {
    LiveLayer live = build_layer(layer, seed);
    convert(*live.module, dtype);
    keep_slices(layer.name, live);
    list_ties(layer, *live.module);
    const std::vector<NamedTensor> added = list_parameters(layer.name, *live.module);
    layers_.emplace_back(layer.name, std::move(live));
    if (on_layer) on_layer(added);
    if (!layer.ties.empty()) share_ties();
  }
  refuse_repeated_names(parameters_);
  train();
}

// Tensor by tensor, so that at most one is there twice. Integers (counters) stay what they are.
void Model::convert(torch::nn::Module& module, at::ScalarType dtype) const {
  const auto convert_one = [dtype](at::Tensor tensor) {
    if (tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != dtype) {
      tensor.set_data(tensor.detach().to(dtype));
    }
  };
  for (const at::Tensor& parameter : module.parameters()) convert_one(parameter);
  for (const at::Tensor& buffer : module.buffers()) convert_one(buffer);
}

const NamedTensor* Model::find_parameter(const std::string& name) const {
  const auto at = std::find_if(parameters_.begin(), parameters_.end(),
                               [&](const NamedTensor& parameter) { return parameter.name == name; });
  return at == parameters_.end() ? nullptr : &*at;
}

void Model::list_ties(const Layer& layer, const torch::nn::Module& module) {
  for (const Tie& tie : layer.ties) {
    const auto own = module.named_parameters();
    const at::Tensor* tensor = own.find(tie.parameter);
    if (tensor == nullptr || !tensor->defined() || !tensor->requires_grad()) {
      fail_usage("layer \"{}\" ties its parameter \"{}\", {}{}", layer.name, tie.parameter,
                 tensor == nullptr ? "which it doesn't have" : "which isn't trained",
                 tensor == nullptr ? did_you_mean(tie.parameter, own.keys()) : "");
    }
    const TiedUse use{full_name(layer.name, tie.parameter), full_name(tie.owner, tie.of_owner), *tensor};
    if (contains(tied_, use.tensor)) fail_usage("\"{}\" is tied already, under another name", use.name);
    const bool is_here = std::any_of(layers_.begin(), layers_.end(),
                                     [&](const auto& earlier) { return earlier.first == tie.owner; });
    if (is_here) check_tie(use, find_parameter(use.owner), parameters_);
    tied_.push_back(use);
  }
}

void Model::share_ties() {
  for (TiedUse& use : tied_) {
    if (const NamedTensor* owner = find_parameter(use.owner)) use.tensor.set_data(owner->tensor.detach());
  }
}

void Model::add_tied_gradients() const {
  const at::NoGradGuard no_grad;
  for (const TiedUse& use : tied_) {
    const NamedTensor* owner = find_parameter(use.owner);
    if (owner == nullptr || gradient_of({use.name, use.tensor}) == nullptr) continue;
    at::Tensor& gradient = use.tensor.mutable_grad();
    if (gradient_of(*owner) == nullptr) {
      owner->tensor.mutable_grad() = gradient;
    } else {
      owner->tensor.mutable_grad().add_(gradient);
    }
    gradient.reset();
  }
}

std::vector<NamedTensor> Model::list_parameters(const std::string& layer, const torch::nn::Module& module) {
  std::vector<NamedTensor> added;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || contains(parameters_, tensor) || contains(others_, tensor)) continue;
    if (contains(tied_, tensor)) continue;
    const std::string name = full_name(layer, item.key());
    if (!tensor.requires_grad()) {
      others_.push_back({name, tensor});
      continue;
    }
    parameters_.push_back({name, tensor});
    added.push_back({name, tensor});
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined() && !contains(others_, item.value())) {
      others_.push_back({full_name(layer, item.key()), item.value()});
    }
  }
  return added;
}

Tensors Model::forward_layer(size_t index, const Tensors& inputs) const {
  const auto& [name, layer] = layers_[index];
  const NoisyLayerScope scope(noise_, name);
  const BatchNormScope batch_norms(*layer.module);
  try {
    Tensors outputs = layer.forward(inputs);
    check_draws_of_layer();
    return outputs;
  } catch (const c10::Error& error) {
    fail("layer \"{}\", forward: {}", name,
         batch_norms.explain(explain_torch(error.what_without_backtrace())));
  } catch (const std::out_of_range&) {
    fail("layer \"{}\", forward: it wants more than the {} input{} it gets", name, inputs.size(),
         inputs.size() == 1 ? "" : "s");
  }
}

Tensors Model::run(const Tensors& inputs, const AfterLayer& after_layer) const {
  TROIKA_ASSERT(inputs.size() >= border_.imports.size(), fmt::format("{} inputs", inputs.size()));
  SkipsUnderWay skips(uses_);
  Tensors values = inputs;
  skips.put(border_.imports, values);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto& [puts, gets] = skips_[i];
    join_slices_before(i, values);
    skips.get(gets, values);
    check_gets_are_read(layers_[i], gets, values.size());
    values = forward_layer(i, values);
    if (values.size() < puts.size()) {
      fail("layer \"{}\", forward: it returned {} tensor{}, but puts {} ({})", layers_[i].first,
           values.size(), values.size() == 1 ? "" : "s", puts.size(), fmt::join(puts, ", "));
    }
    if (after_layer && !after_layer(i, values)) return {};
    skips.put(puts, values);
  }
  join_slices_before(layers_.size(), values);
  skips.get(border_.exports, values);
  return values;
}

// Leaves no trace: what forward changes in the modules (running statistics) is put back.
void Model::try_forward(const Tensors& inputs) const {
  BufferValues buffers;
  for (const auto& [name, layer] : layers_) buffers.add(*layer.module);
  const BufferKeeper put_back(std::move(buffers));
  run(inputs, {});
}

Tensors Model::forward(const Tensors& inputs, const AfterLayer& after_layer) const {
  const std::function<void(const Tensors&)> again = [this](const Tensors& few) { try_forward(few); };
  const ForwardScope scope(inputs, again);
  return run(inputs, after_layer);
}

void Model::train(bool on) {
  for (auto& [name, layer] : layers_) layer.module->train(on);
}

std::string Model::first_batch_norm() const {
  for (const auto& [name, layer] : layers_) {
    for (const auto& item : layer.module->named_modules()) {
      const torch::nn::Module* module = item.value().get();
      if (dynamic_cast<const torch::nn::BatchNorm1dImpl*>(module) != nullptr ||
          dynamic_cast<const torch::nn::BatchNorm2dImpl*>(module) != nullptr ||
          dynamic_cast<const torch::nn::BatchNorm3dImpl*>(module) != nullptr) {
        if (item.key().empty()) return name.empty() ? module->name() : name;
        return full_name(name, item.key());
      }
    }
  }
  return "";
}

}  // namespace troika

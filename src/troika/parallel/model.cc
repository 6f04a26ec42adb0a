#include "troika/parallel/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/parallel/batch_norm.h"
#include "troika/parallel/torch_errors.h"

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

std::string full_name(const std::string& layer, const std::string& name) {
  return layer.empty() ? name : layer + "." + name;
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

bool contains(const std::vector<NamedTensor>& list, const at::Tensor& tensor) {
  return std::any_of(list.begin(), list.end(),
                     [&](const NamedTensor& n) { return n.tensor.is_same(tensor); });
}

void refuse_repeated_names(const std::vector<Layer>& layers) {
  std::unordered_set<std::string> names;
  for (const Layer& layer : layers) {
    if (!names.insert(layer.name).second) {
      fail_usage("two layers are called \"{}\": weights are saved and seeded by name, so give each its own",
                 layer.name);
    }
  }
}

void refuse_repeated_names(const std::vector<NamedTensor>& parameters) {
  std::unordered_set<std::string> names;
  for (const NamedTensor& parameter : parameters) {
    if (!names.insert(parameter.name).second) {
      fail_usage("two parameters are called \"{}\": rename one of their layers", parameter.name);
    }
  }
}

}  // namespace

Model::Model(const std::vector<Layer>& layers, uint64_t seed, at::ScalarType dtype, const OnLayer& on_layer) {
  if (layers.empty()) fail_usage("the model has no layer: give at least one (name, factory)");
  refuse_repeated_names(layers);
  for (const Layer& layer : layers) {
    const std::lock_guard lock(factory_mutex());
    seed_default_generator(hash64(layer.name, seed));
    LiveLayer live = layer.make();
    if (live.module == nullptr || !live.forward) {
      fail_usage("the factory of layer \"{}\" gave no {}", layer.name,
                 live.module ? "forward function" : "module");
    }
    refuse_module_in_use(live.module, layer.name);
    convert(*live.module, dtype);
    const std::vector<NamedTensor> added = list_parameters(layer.name, *live.module);
    layers_.emplace_back(layer.name, std::move(live));
    if (on_layer) on_layer(added);
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

std::vector<NamedTensor> Model::list_parameters(const std::string& layer, const torch::nn::Module& module) {
  std::vector<NamedTensor> added;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || contains(parameters_, tensor) || contains(others_, tensor)) continue;
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

// Leaves no trace: what forward changes in the modules (running statistics) is put back.
void Model::try_forward(const Tensors& inputs) const {
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  for (const auto& [name, layer] : layers_) {
    for (const at::Tensor& buffer : layer.module->buffers()) {
      if (buffer.defined()) kept.emplace_back(buffer, buffer.clone());
    }
  }
  const auto put_back = [&kept] {
    for (auto& [buffer, before] : kept) buffer.copy_(before);
  };
  try {
    Tensors values = inputs;
    for (size_t i = 0; i < layers_.size(); ++i) values = forward_layer(i, values);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
}

Tensors Model::forward(const Tensors& inputs, const AfterLayer& after_layer) const {
  const std::function<void(const Tensors&)> again = [this](const Tensors& few) { try_forward(few); };
  const ForwardScope scope(inputs, again);
  Tensors values = inputs;
  for (size_t i = 0; i < layers_.size(); ++i) {
    values = forward_layer(i, values);
    if (after_layer) after_layer(i);
  }
  return values;
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

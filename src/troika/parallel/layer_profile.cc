#include "troika/parallel/layer_profile.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <map>

#include "troika/base/error.h"
#include "troika/parallel/batch_norm.h"
#include "troika/parallel/bf16.h"
#include "troika/parallel/flat_tensors.h"
#include "troika/parallel/forward_state.h"
#include "troika/parallel/hand_over.h"
#include "troika/parallel/memory_meter.h"
#include "troika/parallel/step_context.h"
#include "troika/parallel/step_math.h"
#include "troika/parallel/wiring.h"

namespace troika {
namespace {

using torch::autograd::Edge;

/// The identity, which keeps the gradient that comes back and holds no tensor: a leaf would hold its numbers,
/// which nobody does between the layers of a stage.
class CutGraph : public torch::autograd::Function<CutGraph> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor&,
                            const at::Tensor& in, int64_t gradient) {
    context->saved_data["gradient"] = gradient;
    return in.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    *reinterpret_cast<at::Tensor*>(context->saved_data["gradient"].toInt()) = gradients[0];
    return {at::empty({0}), {}, {}};
  }
};

struct Source {  // of a tensor: an output of a layer, or (-1) of the batch
  int64_t layer = -1;
  size_t output = 0;
};

struct Value {
  at::Tensor tensor;
  Source source;
  bool needs_gradient = false;
};

struct Input {
  Source source;
  at::Tensor leaf;      // stands for it in the graph; undefined if no gradient is to come back
  at::Tensor gradient;  // written by backward
};

class ProfiledLayer {
 public:
  ProfiledLayer(const Layer& layer, const ReplicaOptions& options)
      : model({layer}, options.seed, options.dtype, {}, {layer.gets, layer.puts}), layer_(layer) {
    for (const NamedTensor& parameter : model.parameters()) {
      leaves.push_back(parameter.tensor);
      found.parameters += parameter.tensor.numel();
    }
    for (const TiedUse& use : model.tied()) leaves.push_back(use.tensor);
    found.name = layer.name;
    found.parameter_bytes = layout_of(model.parameters(), options.dtype).total *
                            static_cast<int64_t>(c10::elementSize(options.dtype));
  }

  /// Of a pass, in seconds; what it takes for itself is noted.
  template <typename Pass>
  double measured(const Pass& pass) {
    meter.restart_peak();
    const int64_t before = meter.current_bytes();
    const MeterScope memory(&meter);
    const auto start = Clock::now();
    pass();
    const double seconds = seconds_since(start);
    found.working_bytes =
        std::max(found.working_bytes, meter.peak_bytes() - std::max(before, meter.current_bytes()));
    return seconds;
  }

  void begin_backward(const Tensors& outputs, bool in_parts) {
    roots.clear();
    split.reset();
    if (in_parts) {
      std::vector<at::Tensor> cuts;
      for (const Input& input : inputs)
        if (input.leaf.defined()) cuts.push_back(input.leaf);
      split.emplace(outputs, std::move(cuts), leaves);
      return;
    }
    for (const at::Tensor& output : outputs) {
      roots.push_back(
          output.defined() && output.requires_grad() ? torch::autograd::impl::gradient_edge(output) : Edge());
    }
  }

  void backward(const Tensors& gradients) {
    std::vector<Edge> from;
    Tensors with;
    for (size_t i = 0; i < roots.size(); ++i) {
      if (!roots[i].is_valid() || !gradients[i].defined()) continue;
      from.push_back(std::move(roots[i]));
      with.push_back(gradients[i]);
    }
    roots.clear();
    if (from.empty()) return;
    torch::autograd::Engine::get_default_engine().execute(from, with, /*keep_graph=*/false,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true, {});
  }

  void drop_gradients() {
    for (at::Tensor& leaf : leaves) leaf.mutable_grad().reset();
  }

  Model model;
  MemoryMeter meter;  // of what passes make; the weights were there before
  std::vector<at::Tensor> leaves;
  std::vector<Input> inputs;
  std::vector<Edge> roots;
  std::optional<SplitBackward> split;
  Tensors gradients;  // of the outputs, as they come back
  std::vector<double> forward_s, backward_s, input_s, weight_s;
  LayerProfile found;

  const std::vector<std::string>& gets() const { return layer_.gets; }
  const std::vector<std::string>& puts() const { return layer_.puts; }

 private:
  const Layer& layer_;
};

class Profiler {
 public:
  Profiler(const std::vector<Layer>& layers, const ReplicaOptions& options, const Batch& batch,
           const Loss& loss)
      : options_(options), batch_(batch), loss_(loss) {
    check_layers(layers);
    for (const Layer& layer : layers) {
      layers_.push_back(std::make_unique<ProfiledLayer>(layer, options));
      for (const std::string& skip : layer.gets) ++readers_[skip];
    }
  }

  void round(bool in_parts) {
    forward(in_parts);
    for (auto& layer : layers_) layer->found.held_bytes = layer->meter.current_bytes();
    const auto each = [this](const auto& pass) {
      for (size_t i = layers_.size(); i-- > 0;) pass(*layers_[i]);
    };
    each([&](ProfiledLayer& layer) {
      const Tensors gradients = std::move(layer.gradients);
      Tensors of_inputs;
      const double seconds = layer.measured([&] {
        if (in_parts) {
          of_inputs = layer.split->input_part(gradients);
        } else {
          layer.backward(gradients);
        }
      });
      (in_parts ? layer.input_s : layer.backward_s).push_back(seconds);
      give_back(layer);
      if (!in_parts) layer.drop_gradients();
    });
    if (!in_parts) return;
    for (auto& layer : layers_) layer->found.pending_bytes = layer->meter.current_bytes();
    each([](ProfiledLayer& layer) {
      layer.weight_s.push_back(layer.measured([&] { layer.split->weight_part(); }));
      layer.found.split = layer.split->counts();
      layer.split.reset();
      layer.drop_gradients();
    });
  }

  void forget_passes() {
    for (auto& layer : layers_) {
      for (auto* times : {&layer->forward_s, &layer->backward_s, &layer->input_s, &layer->weight_s})
        times->clear();
      layer->found.working_bytes = 0;
    }
  }

  std::vector<LayerProfile> result() {
    std::vector<LayerProfile> all;
    for (auto& layer : layers_) {
      LayerProfile& found = layer->found;
      found.forward_s = median(layer->forward_s);
      found.input_s = median(layer->input_s);
      found.weight_s = median(layer->weight_s);
      found.backward_s =
          layer->backward_s.empty() ? found.input_s + found.weight_s : median(layer->backward_s);
      all.push_back(std::move(found));
    }
    return all;
  }

 private:
  static double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  Tensors hand_in(ProfiledLayer& layer, const std::vector<Value>& values) {
    layer.inputs.assign(values.size(), {});
    Tensors inputs;
    for (size_t i = 0; i < values.size(); ++i) {
      Input& input = layer.inputs[i];
      input.source = values[i].source;
      const at::Tensor given = hand_out(values[i].tensor);
      if (values[i].needs_gradient) {
        input.leaf = at::empty({0}).requires_grad_(true);
        inputs.push_back(CutGraph::apply(input.leaf, given, reinterpret_cast<int64_t>(&input.gradient)));
      } else {
        inputs.push_back(given);
      }
    }
    return inputs;
  }

  void forward(bool in_parts) {
    const c10::AutoGradMode with_gradients(true);
    std::vector<Value> chain;
    for (const at::Tensor& input : batch_.inputs) chain.push_back({input, {}, false});
    std::map<std::string, std::pair<Value, int64_t>> skips;  // and how many have yet to read it
    for (size_t i = 0; i < layers_.size(); ++i) {
      ProfiledLayer& layer = *layers_[i];
      for (const std::string& name : layer.gets()) {
        const auto skip = skips.find(name);
        chain.push_back(skip->second.first);
        if (--skip->second.second == 0) skips.erase(skip);
      }
      const bool is_last = i + 1 == layers_.size();
      Tensors outputs;
      BatchNormLog ignored(layer.model);
      layer.forward_s.push_back(layer.measured([&] {
        const StepScope step(context_of(options_, batch_, 1, &ignored));
        const Bf16Scope precision(options_.bf16);
        outputs = layer.model.forward(hand_in(layer, chain));
        if (is_last) {
          outputs = without_bf16(std::move(outputs));
          outputs = {checked_loss(loss_, outputs, batch_).sum};
        }
      }));
      layer.begin_backward(outputs, in_parts);
      layer.gradients.assign(outputs.size(), {});
      std::vector<Value> given;
      for (size_t k = 0; k < outputs.size(); ++k) {
        given.push_back(
            {outputs[k], {static_cast<int64_t>(i), k}, outputs[k].defined() && outputs[k].requires_grad()});
      }
      if (is_last) {
        layer.gradients[0] = at::ones_like(outputs[0]);
        given.clear();
      }
      outputs.clear();
      const size_t chained = is_last ? 0 : given.size() - layer.puts().size();
      for (size_t k = chained; k < given.size(); ++k) {
        const std::string& name = layer.puts()[k - chained];
        if (readers_.contains(name)) skips[name] = {given[k], readers_.at(name)};
      }
      given.resize(chained);
      layer.found.output_bytes = 0;
      for (const Value& value : given) {
        if (value.tensor.defined()) layer.found.output_bytes += static_cast<int64_t>(value.tensor.nbytes());
      }
      // What the layer before has given goes now, but for what is saved.
      const int64_t before = i == 0 ? 0 : layers_[i - 1]->meter.current_bytes();
      chain = std::move(given);
      given.clear();
      if (i > 0) layers_[i - 1]->found.loose_bytes = before - layers_[i - 1]->meter.current_bytes();
    }
  }

  // To the layers whose outputs this one has read, added up where several have.
  void give_back(ProfiledLayer& layer) {
    for (Input& input : layer.inputs) {
      if (!input.gradient.defined()) continue;
      at::Tensor& sum = layers_[static_cast<size_t>(input.source.layer)]->gradients[input.source.output];
      sum = sum.defined() ? at::add(sum, input.gradient) : std::move(input.gradient);
      input.gradient.reset();
    }
  }

  const ReplicaOptions& options_;
  const Batch& batch_;
  const Loss& loss_;
  std::vector<std::unique_ptr<ProfiledLayer>> layers_;
  std::map<std::string, int64_t> readers_;  // of each skip
};

}  // namespace

std::vector<LayerProfile> profile_layers(const std::vector<Layer>& layers, const ReplicaOptions& options,
                                         const Batch& batch, const Loss& loss,
                                         const ProfileOptions& profile) {
  TROIKA_ASSERT(batch.samples > 0, "a profile needs a sample");
  const auto start = Clock::now();
  const GeneratorKeeper generator;
  Profiler profiler(layers, options, batch, loss);
  profiler.round(/*in_parts=*/true);  // how much can be put off is seen in any case
  profiler.forget_passes();
  for (int round = 1; round < std::max(2, profile.rounds); ++round) {
    const auto begin = Clock::now();
    profiler.round(profile.in_parts);
    if (seconds_since(start) + seconds_since(begin) > profile.seconds) break;
  }
  return profiler.result();
}

}  // namespace troika

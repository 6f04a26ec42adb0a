// Model: the constructed layers of one rank, in order, and their parameters by name.
// Threading: belongs to one rank's thread.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "troika/parallel/layer.h"
#include "troika/parallel/noise_plan.h"
#include "troika/parallel/tensor/cut.h"

namespace troika {

class TensorAxis;
struct LayerSplit;
struct TensorPlan;

struct NamedTensor {
  std::string name;  // "<layer>.<parameter>", or "<parameter>" for a layer whose name is empty
  at::Tensor tensor;
};

/// What a model that is a piece of a larger one takes from earlier pieces and gives to later ones, besides
/// the chain's tensors.
struct Border {
  std::vector<std::string> imports, exports;
};

/// A use of a parameter that an earlier layer owns: a leaf with a gradient of its own. Its numbers are the
/// owner's once someone has put them there.
struct TiedUse {
  std::string name;   // full name of the parameter in the layer that uses it
  std::string owner;  // full name of the owner's
  at::Tensor tensor;
};

/// Which slices of its layers a model keeps; null members: all of them are whole.
struct ModelSlices {
  TensorAxis* axis = nullptr;        // outlives the model
  const TensorPlan* plan = nullptr;  // of the whole list of layers; outlives the model
  size_t first_layer = 0;            // of the model, in the plan
};

/// What the layer's factory makes with the numbers that the seed gives, under the one lock of all factories.
/// Throws UsageError if it makes nothing, or a module that somebody else has.
LiveLayer build_layer(const Layer& layer, uint64_t seed);

class Model {
 public:
  /// Each factory runs under one process-wide lock after seeding torch's default generator from hash(seed,
  /// layer name), so the numbers don't depend on ranks or on the order of construction. Throws UsageError for
  /// layers whose names, skips or ties don't fit (check_layers() in wiring.h), and for a tie to a parameter
  /// that its owner doesn't train or that has another shape. `on_layer` sees the trainable parameters that
  /// each layer adds, before the next layer is built: who moves them elsewhere never holds two models in
  /// memory.
  using OnLayer = std::function<void(const std::vector<NamedTensor>& parameters)>;
  Model(const std::vector<Layer>& layers, uint64_t seed, at::ScalarType dtype = at::kFloat,
        const OnLayer& on_layer = {}, Border border = {}, ModelSlices slices = {});

  /// Inputs: those of the first layer, then the imports; outputs: those of the last layer, then the exports.
  /// Throws Error naming the layer that failed, or that put fewer tensors than it says. Within a StepScope
  /// noise is keyed by sample; the samples are dimension 0 of the inputs, imports included. `after_layer`
  /// sees all outputs of each layer, its puts among them; if it returns false forward stops, without outputs.
  using AfterLayer = std::function<bool(size_t index, const Tensors& outputs)>;
  Tensors forward(const Tensors& inputs, const AfterLayer& after_layer = {}) const;
  Tensors forward_layer(size_t index, const Tensors& inputs) const;

  void train(bool on = true);

  /// Those that require grad, each once, in model order.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  /// Uses of tied parameters, in the order of layers: they are not among parameters(). One whose owner is in
  /// this model has the owner's memory; any other has numbers of its own.
  const std::vector<TiedUse>& tied() const { return tied_; }
  /// Points tied uses at the numbers of their owners in this model: to be called when those have been moved.
  void share_ties();
  /// After backward: adds the gradients of tied uses to those of their owners in this model, in place and in
  /// the order of layers, and drops them.
  void add_tied_gradients() const;
  /// Parameters that don't require grad, and buffers such as running statistics.
  const std::vector<NamedTensor>& others() const { return others_; }

  /// Null if it isn't one of several tensor ranks'.
  TensorAxis* axis() const { return slices_.axis; }
  /// Of parameters and others that are slices here.
  const Cuts& cuts() const { return cuts_; }

  /// The name of the first layer that a run with more than one rank can't be exact with (BatchNorm), or "".
  std::string first_batch_norm() const;

  const std::vector<std::pair<std::string, LiveLayer>>& layers() const { return layers_; }

 private:
  void convert(torch::nn::Module& module, at::ScalarType dtype) const;
  void list_ties(const Layer& layer, const torch::nn::Module& module);
  std::vector<NamedTensor> list_parameters(const std::string& layer, const torch::nn::Module& module);
  const NamedTensor* find_parameter(const std::string& name) const;
  Tensors run(const Tensors& inputs, const AfterLayer& after_layer) const;
  void try_forward(const Tensors& inputs) const;
  const LayerSplit* split_of(size_t index) const;
  void keep_slices(const std::string& name, LiveLayer& live);
  void join_slices_before(size_t index, Tensors& values) const;

  /// Names of one layer's skips.
  struct Skips {
    std::vector<std::string> puts, gets;
  };
  std::vector<std::pair<std::string, LiveLayer>> layers_;
  std::vector<Skips> skips_;                       // by layer
  std::unordered_map<std::string, int64_t> uses_;  // of each skip, exports included
  Border border_;
  ModelSlices slices_;
  Cuts cuts_;
  std::vector<NamedTensor> parameters_;
  std::vector<TiedUse> tied_;
  std::vector<NamedTensor> others_;
  mutable NoisePlan noise_;  // learnt as forward goes
};

}  // namespace troika

#include "troika/parallel/recompute.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>
#include <torch/nn/module.h>

#include <optional>
#include <unordered_set>

#include "troika/base/error.h"
#include "troika/base/glob.h"
#include "troika/base/text.h"
#include "troika/parallel/batch_norm.h"
#include "troika/parallel/forward_state.h"
#include "troika/parallel/noise_tape.h"
#include "troika/parallel/saved_tensors.h"
#include "troika/parallel/step_context.h"

namespace troika {
namespace {

using torch::autograd::SavedVariableHooks;

thread_local bool is_off = false;

int64_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? static_cast<int64_t>(tensor._version()) : 0;
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

/// Autocast's cache of cast weights would outlive a forward within backward.
class NoAutocastCache {
 public:
  NoAutocastCache() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }

 private:
  bool before_;
};

/// One forward of a layer, and what it takes to run it again.
class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  Recomputation(std::string name, const torch::nn::Module& module,
                std::function<Tensors(const Tensors&)> forward, const Tensors& inputs)
      : name_(std::move(name)), module_(module), forward_(std::move(forward)) {
    for (const at::Tensor& input : inputs) {
      inputs_.push_back({input.defined() ? input.detach() : input, version_of(input),
                         input.defined() && input.requires_grad()});
      kept_memory_.insert(memory_of(input));
    }
    for (const at::Tensor& parameter : module.parameters()) {
      if (!parameter.defined()) continue;
      parameters_.push_back({parameter, version_of(parameter), parameter.const_data_ptr()});
      kept_memory_.insert(memory_of(parameter));
    }
    kept_memory_.erase(nullptr);
    if (const StepContext* const step = current_step()) step_ = *step;
  }

  Tensors first_forward(const Tensors& inputs) {
    const NoRecompute within_another;
    const at::Tensor generator = generator_state();
    BufferValues buffers;
    buffers.add(module_);
    Tensors outputs;
    {
      const NoiseRecording recording(noise_);
      const SavedTensorScope saved([this] { return hooks(); });
      outputs = forward_(inputs);
    }
    if (!at::equal(generator, generator_state())) generator_ = generator;
    buffers.keep_changed();
    buffers_before_ = std::move(buffers);
    check_inputs("writes into its", " in place");
    is_first_ = false;
    return outputs;
  }

  /// Of what a node saves; the number that it has among those that are computed again.
  size_t note(const at::Tensor& tensor) {
    const Shape shape{tensor.sizes().vec(), tensor.scalar_type()};
    if (is_first_) {
      shapes_.push_back(shape);
      return shapes_.size() - 1;
    }
    if (values_.size() >= shapes_.size() || shapes_[values_.size()] != shape) fail_other_tensors();
    values_.push_back({tensor.detach(), version_of(tensor)});
    return values_.size() - 1;
  }

  bool is_kept(const at::Tensor& tensor) const { return kept_memory_.contains(memory_of(tensor)); }

  at::Tensor value(size_t index) {
    if (is_first_) {
      fail_usage(
          "layer \"{}\" runs backward within its forward, which a recomputed layer can't: leave it out of "
          "what is recomputed",
          name_);
    }
    if (!has_run_again_ && !is_running_again_) run_again();
    const Value& found = values_.at(index);
    check_unwritten(found.tensor, found.version);
    return found.tensor;
  }

  void check_unwritten(const at::Tensor& tensor, int64_t version) const {
    if (version_of(tensor) == version) return;
    fail_usage(
        "layer \"{}\": something that its backward needs has been written in place since its forward "
        "computed "
        "or got it (version {}, expected {}): use forms that don't write in place there",
        name_, version_of(tensor), version);
  }

  void forget(size_t index) {
    if (has_run_again_ && index < values_.size()) values_[index].tensor.reset();
  }

 private:
  struct Input {
    at::Tensor tensor;  // outside of the graph
    int64_t version = 0;
    bool needs_gradient = false;
  };
  struct Parameter {
    at::Tensor tensor;
    int64_t version = 0;
    const void* data = nullptr;
  };
  struct Shape {
    std::vector<int64_t> sizes;
    at::ScalarType type = at::kFloat;
    bool operator==(const Shape&) const = default;
  };
  struct Value {
    at::Tensor tensor;
    int64_t version = 0;
  };

  std::unique_ptr<SavedVariableHooks> hooks();

  void check_inputs(const char* what, const char* how) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (version_of(inputs_[i].tensor) == inputs_[i].version) continue;
      fail_usage(
          "layer \"{}\" {} input {}{}, so its forward can't run a second time: use the form that doesn't "
          "write "
          "in place, or leave the layer out of what is recomputed",
          name_, what, i, how);
    }
  }

  void check_parameters() const {
    for (const Parameter& parameter : parameters_) {
      if (version_of(parameter.tensor) == parameter.version &&
          parameter.tensor.const_data_ptr() == parameter.data) {
        continue;
      }
      fail_usage(
          "layer \"{}\": its weights have changed between a forward and its backward, so its forward can't "
          "run "
          "a second time: update them after backward",
          name_);
    }
  }

  [[noreturn]] void fail_other_tensors() const {
    fail_usage(
        "layer \"{}\" doesn't compute the same a second time: its forward saved {} tensors for backward, and "
        "running again it saves others. A forward that depends on anything but inputs, weights and keyed "
        "noise "
        "can't be recomputed: leave the layer out of what is recomputed",
        name_, shapes_.size());
  }

  void run_again() {
    check_inputs("got its", ", which has been written in place since");
    check_parameters();
    is_running_again_ = true;
    {
      const NoRecompute within_another;
      const at::ThreadLocalStateGuard as_called(state_);  // grad mode and autocast, too
      const NoAutocastCache no_cache;
      std::optional<StepScope> step;
      if (step_) {
        // Statistics have had these samples: what a BatchNorm writes into its buffers now is put back.
        step_->batch_norm = nullptr;
        step.emplace(*step_);
      }
      const NoiseReplay replay(noise_);
      const BatchNormScope batch_norms(module_);
      std::optional<GeneratorKeeper> generator;
      if (generator_.defined()) generator.emplace(generator_);
      BufferValues buffers;
      buffers.add(module_);
      const BufferKeeper put_back(std::move(buffers));
      buffers_before_->write();
      const SavedTensorScope saved([this] { return hooks(); });
      Tensors inputs;
      for (const Input& input : inputs_) {
        inputs.push_back(input.needs_gradient ? input.tensor.detach().requires_grad_(true) : input.tensor);
      }
      forward_(inputs);
    }
    is_running_again_ = false;
    if (values_.size() != shapes_.size()) fail_other_tensors();
    has_run_again_ = true;
  }

  std::string name_;
  const torch::nn::Module& module_;
  std::function<Tensors(const Tensors&)> forward_;
  std::vector<Input> inputs_;
  std::vector<Parameter> parameters_;
  std::unordered_set<const void*> kept_memory_;
  at::ThreadLocalState state_;
  std::optional<StepContext> step_;
  NoiseTape noise_;
  at::Tensor generator_;  // its state before the forward, if that drew from it
  std::optional<BufferValues> buffers_before_;
  std::vector<Shape> shapes_;
  std::vector<Value> values_;
  bool is_first_ = true, is_running_again_ = false, has_run_again_ = false;
};

/// What a node holds instead of a tensor.
class Placeholder final : public SavedVariableHooks {
 public:
  explicit Placeholder(std::shared_ptr<Recomputation> owner) : owner_(std::move(owner)) {}
  ~Placeholder() override {
    if (!kept_.defined()) owner_->forget(index_);
  }

  void call_pack_hook(const at::Tensor& tensor) override {
    if (!owner_->is_kept(tensor)) {
      index_ = owner_->note(tensor);
      return;
    }
    kept_ = tensor.detach();
    version_ = version_of(tensor);
  }

  at::Tensor call_unpack_hook() override {
    if (!kept_.defined()) return owner_->value(index_);
    owner_->check_unwritten(kept_, version_);
    return kept_;
  }

 private:
  std::shared_ptr<Recomputation> owner_;
  size_t index_ = 0;
  at::Tensor kept_;
  int64_t version_ = 0;
};

std::unique_ptr<SavedVariableHooks> Recomputation::hooks() {
  return std::make_unique<Placeholder>(shared_from_this());
}

}  // namespace

NoRecompute::NoRecompute() : before_(std::exchange(is_off, true)) {}
NoRecompute::~NoRecompute() { is_off = before_; }

Tensors recompute(const std::string& name, const torch::nn::Module& module,
                  const std::function<Tensors(const Tensors&)>& forward, const Tensors& inputs) {
  if (is_off || !at::GradMode::is_enabled()) return forward(inputs);
  return std::make_shared<Recomputation>(name, module, forward, inputs)->first_forward(inputs);
}

Layer recomputed(Layer layer) {
  const auto make = std::move(layer.make);
  layer.make = [name = layer.name, make] {
    LiveLayer live = make();
    if (live.module == nullptr || !live.forward) return live;  // the model says so
    live.forward = [name, module = live.module, forward = live.forward](const Tensors& inputs) {
      return recompute(name, *module, forward, inputs);
    };
    return live;
  };
  return layer;
}

std::vector<Layer> recompute_matching(std::vector<Layer> layers, const std::vector<std::string>& patterns,
                                      const std::string& key) {
  std::vector<std::string> names;
  for (const Layer& layer : layers) names.push_back(layer.name);
  for (const std::string& pattern : patterns) {
    const auto is_meant = [&](const std::string& name) { return matches_glob(pattern, name); };
    if (std::ranges::any_of(names, is_meant)) continue;
    fail_usage("{}: no layer is called \"{}\"{}; there are {}", key, pattern, did_you_mean(pattern, names),
               fmt::join(names, ", "));
  }
  for (Layer& layer : layers) {
    const auto means_it = [&](const std::string& pattern) { return matches_glob(pattern, layer.name); };
    if (std::ranges::any_of(patterns, means_it)) layer = recomputed(std::move(layer));
  }
  return layers;
}

}  // namespace troika

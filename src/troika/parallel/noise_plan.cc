#include "troika/parallel/noise_plan.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <map>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/parallel/forward_state.h"
#include "troika/parallel/noise_slice.h"
#include "troika/parallel/sample_dims.h"

namespace troika {

struct ForwardScope::Present {
  const Tensors& inputs;
  const std::function<void(const Tensors&)>& again;
  c10::impl::LocalDispatchKeySet keys;  // as the model is called: autocast and all
  bool tried = false;
  int64_t trial_samples = 0;
  std::map<std::pair<uint64_t, uint64_t>, NoiseTrial> trials;  // by layer and draw
};

namespace {

// Of a trial's halves, in the right order, relative to the largest number: rounding of other shapes in
// bfloat16.
constexpr double kSame = 0.02;

thread_local ForwardScope::Present* forward_now = nullptr;
thread_local ForwardScope::Present* trial_now = nullptr;
thread_local NoisyLayerScope::Present layer_now;
thread_local const SampleDims* input_dims = nullptr;

int64_t product(at::IntArrayRef sizes, size_t begin, size_t end) {
  int64_t result = 1;
  for (size_t i = begin; i < end; ++i) result *= sizes[i];
  return result;
}

// How many samples a trial takes, each given twice: several, so that halves in a wrong order differ; and
// together another number than that of the piece.
int64_t half_of_trial(int64_t samples) {
  const int64_t half = std::min<int64_t>(samples, 3);
  return 2 * half == samples ? half - 1 : half;
}

double difference(const at::Tensor& x, size_t dimension, int64_t others, bool samples_last) {
  const at::IntArrayRef sizes = x.sizes();
  const int64_t before = product(sizes, 0, dimension), after = product(sizes, dimension + 1, sizes.size());
  const int64_t half = sizes[dimension] / others / 2;
  const at::Tensor parts = samples_last ? x.reshape({before, others, 2, half * after})
                                        : x.reshape({before, 1, 2, half * others * after});
  return parts.select(2, 0).sub(parts.select(2, 1)).abs().max().item<double>();
}

int samples_of_input(const Tensors& inputs, size_t i, int64_t samples) {
  if (input_dims != nullptr && !input_dims->empty()) return input_dims->at(i);
  const bool has_samples = inputs[i].defined() && inputs[i].dim() > 0 && inputs[i].size(0) == samples;
  return has_samples ? 0 : kNoSamples;
}

/// The first `half` samples of the inputs, each twice; empty if nothing can be learnt from them.
Tensors few_of(const Tensors& inputs, int64_t samples, int64_t half) {
  Tensors out;
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int dimension = samples_of_input(inputs, i, samples);
    if (dimension == kUnknownSamples) return {};
    any |= dimension >= 0;
    if (dimension < 0) {
      out.push_back(inputs[i].defined() ? inputs[i].detach() : inputs[i]);
      continue;
    }
    const at::Tensor few = inputs[i].detach().narrow(dimension, 0, half);
    out.push_back(at::cat({few, few}, dimension));
  }
  return any ? out : Tensors{};
}

void run_trial(ForwardScope::Present& present, int64_t samples) {
  const int64_t half = half_of_trial(samples);
  present.tried = true;
  present.trial_samples = 2 * half;
  const at::NoGradGuard no_grad;
  const c10::impl::ForceDispatchKeyGuard as_called(present.keys);
  const NoisyLayerScope::Present layer_before = layer_now;
  // It takes no numbers from torch's generator, so that other random layers go on as without it.
  const GeneratorKeeper keeper;
  StepContext context = *current_step();
  context.samples = {0, 2 * half};
  context.batch_norm_group = 0;
  context.batch_norm = nullptr;
  const StepScope scope(context);
  const Tensors inputs = few_of(present.inputs, samples, half);
  if (inputs.empty()) return;
  trial_now = &present;
  try {
    present.again(inputs);
  } catch (...) {
    // A model that can't run on few samples: what was seen until then counts.
  }
  trial_now = nullptr;
  layer_now = layer_before;
}

/// Between a tensor of `samples` and the same of `few_samples`.
int changed_dimension(const at::Tensor& all, int64_t samples, const at::Tensor& few, int64_t few_samples) {
  if (!all.defined() || !few.defined()) return kNoSamples;
  if (all.dim() != few.dim()) return kUnknownSamples;
  int found = kNoSamples;
  for (int64_t d = 0; d < all.dim(); ++d) {
    if (all.size(d) == few.size(d)) continue;
    const bool is_samples = found == kNoSamples && all.size(d) == samples && few.size(d) == few_samples;
    found = is_samples ? static_cast<int>(d) : kUnknownSamples;
    if (!is_samples) break;
  }
  return found;
}

NoiseSite site_of(at::IntArrayRef sizes, int64_t samples, const NoiseTrial& seen, int64_t trial_samples) {
  NoiseSite site{NoiseSite::Kind::unknown, 0, false, sizes.vec()};
  if (seen.sizes.size() != sizes.size()) return site;
  int differ = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == seen.sizes[i]) continue;
    ++differ;
    site.dimension = i;
  }
  if (differ == 0) {
    site.kind = NoiseSite::Kind::shared;
    return site;
  }
  const size_t d = site.dimension;
  if (differ > 1 || sizes[d] % samples != 0 || sizes[d] / samples * trial_samples != seen.sizes[d])
    return site;
  if (sizes[d] > samples && seen.is_neither[d]) return site;
  site.samples_last = sizes[d] > samples && seen.is_samples_last[d];
  site.kind = NoiseSite::Kind::samples;
  return site;
}

bool fits(const NoiseSite& site, at::IntArrayRef sizes, int64_t samples) {
  switch (site.kind) {
    case NoiseSite::Kind::samples:
      return sizes.size() == site.sizes.size() && sizes[site.dimension] % samples == 0;
    case NoiseSite::Kind::shared:
      return sizes == at::IntArrayRef(site.sizes);
    case NoiseSite::Kind::unknown:
      return true;
  }
  return false;
}

// Outside of a Model nothing can be tried; what is there is batch first.
NoiseSite batch_first(at::IntArrayRef sizes, int64_t samples) {
  const bool divides = !sizes.empty() && sizes[0] % samples == 0;
  return {divides ? NoiseSite::Kind::samples : NoiseSite::Kind::unknown, 0, false, sizes.vec()};
}

NoiseSite planned_site(at::IntArrayRef sizes, int64_t samples) {
  if (layer_now.plan == nullptr) return batch_first(sizes, samples);
  const uint64_t draw = noise_keys_taken();
  const NoiseSite* known = layer_now.plan->find(layer_now.hash, draw);
  if (known != nullptr && fits(*known, sizes, samples)) return *known;
  if (forward_now == nullptr) return batch_first(sizes, samples);
  if (!forward_now->tried) run_trial(*forward_now, samples);
  const auto seen = forward_now->trials.find({layer_now.hash, draw});
  const NoiseSite site = seen == forward_now->trials.end()
                             ? NoiseSite{NoiseSite::Kind::unknown, 0, false, sizes.vec()}
                             : site_of(sizes, samples, seen->second, forward_now->trial_samples);
  return layer_now.plan->set(layer_now.hash, draw, site);
}

}  // namespace

const NoiseSite* NoisePlan::find(uint64_t layer, uint64_t draw) const {
  const auto at = sites_.find(layer);
  if (at == sites_.end() || draw >= at->second.size() || !at->second[draw]) return nullptr;
  return &*at->second[draw];
}

const NoiseSite& NoisePlan::set(uint64_t layer, uint64_t draw, NoiseSite site) {
  auto& draws = sites_[layer];
  if (draws.size() <= draw) draws.resize(draw + 1);
  draws[draw] = std::move(site);
  return *draws[draw];
}

ForwardScope::ForwardScope(const Tensors& inputs, const std::function<void(const Tensors&)>& again)
    : present_(new Present{inputs, again, c10::impl::tls_local_dispatch_key_set(), false, 0, {}}),
      before_(forward_now) {
  forward_now = present_.get();
}
ForwardScope::~ForwardScope() { forward_now = before_; }

NoisyLayerScope::NoisyLayerScope(NoisePlan& plan, const std::string& name)
    : NoisyLayerScope(Present{&plan, &name, hash64(name)}) {}
NoisyLayerScope::NoisyLayerScope(const Present& layer) : scope_(layer.hash), before_(layer_now) {
  layer_now = layer;
}
NoisyLayerScope::~NoisyLayerScope() { layer_now = before_; }

InputDims::InputDims(const SampleDims& dims) : before_(input_dims) { input_dims = &dims; }
InputDims::~InputDims() { input_dims = before_; }

SampleDims find_output_dims(const Model& model, const Tensors& inputs, const Tensors& outputs) {
  const int64_t samples = current_step()->samples.size();
  Tensors few;
  const std::function<void(const Tensors&)> again = [&](const Tensors& some) { few = model.forward(some); };
  BufferValues buffers;
  for (const auto& [name, layer] : model.layers()) buffers.add(*layer.module);
  const BufferKeeper put_back(std::move(buffers));
  ForwardScope::Present trial{inputs, again, c10::impl::tls_local_dispatch_key_set(), false, 0, {}};
  run_trial(trial, samples);
  SampleDims dims;
  for (size_t i = 0; i < outputs.size(); ++i) {
    dims.push_back(few.size() == outputs.size()
                       ? changed_dimension(outputs[i], samples, few[i], trial.trial_samples)
                       : kUnknownSamples);
  }
  return dims;
}

bool in_noise_trial() { return trial_now != nullptr; }

void note_trial(const at::Tensor& tensor) {
  const uint64_t draw = noise_keys_taken();
  next_noise_key();
  NoiseTrial seen;
  seen.sizes = tensor.sizes().vec();
  seen.is_samples_last.resize(seen.sizes.size());
  seen.is_neither.resize(seen.sizes.size());
  const at::Tensor x = tensor.detach().to(at::kDouble);
  const double limit = kSame * x.abs().max().item<double>();
  for (size_t d = 0; d < seen.sizes.size(); ++d) {
    const int64_t others = seen.sizes[d] / trial_now->trial_samples;
    if (others < 2 || seen.sizes[d] % trial_now->trial_samples != 0) continue;
    const double first = difference(x, d, others, false), last = difference(x, d, others, true);
    seen.is_samples_last[d] =
        last < first;  // where both are equal, samples come first, as in the model's input
    seen.is_neither[d] = std::min(first, last) > limit;
  }
  trial_now->trials[{layer_now.hash, draw}] = std::move(seen);
}

void check_draws_of_layer() {
  if (forward_now == nullptr || !forward_now->tried || trial_now != nullptr || current_step() == nullptr)
    return;
  uint64_t draws = 0;
  for (const auto& [place, seen] : forward_now->trials) draws += place.first == layer_now.hash;
  if (draws == noise_keys_taken() || current_step()->ranks == 1) return;
  fail_usage(
      "layer \"{}\" draws noise {} times for {} samples and {} times for {}, so whose noise it is can't be "
      "told: "
      "with {} ranks it would drop other elements than one rank does. Draw for all samples at once, or train "
      "on "
      "one rank",
      *layer_now.name, noise_keys_taken(), current_step()->samples.size(), draws, forward_now->trial_samples,
      current_step()->ranks);
}

NoiseLayout next_noise_layout(at::IntArrayRef sizes) {
  const StepContext& context = *current_step();
  const int64_t samples = context.samples.size();
  const int64_t numel = product(sizes, 0, sizes.size());
  const NoiseSite site = planned_site(sizes, samples);
  switch (site.kind) {
    case NoiseSite::Kind::shared:
      return within_slice({1, 1, numel, true}, sizes, sizes.size());
    case NoiseSite::Kind::samples: {
      const size_t d = site.dimension;
      const int64_t others = sizes[d] / samples;
      const int64_t outer = product(sizes, 0, d) * (site.samples_last ? others : 1);
      return within_slice({outer, samples, numel / samples / outer, false}, sizes, d);
    }
    case NoiseSite::Kind::unknown:
      break;
  }
  if (context.ranks > 1) {
    fail_usage(
        "layer \"{}\": its dropout number {} is on a tensor of [{}], and which dimension holds the {} "
        "samples "
        "can't be told: with {} ranks it would drop other elements than one rank does. Keep the samples in a "
        "dimension of their own and the other sizes the same for any number of samples, or train on one rank",
        layer_now.name != nullptr ? *layer_now.name : "", noise_keys_taken(), fmt::join(sizes, ", "), samples,
        context.ranks);
  }
  return {1, 1, numel, false};
}

}  // namespace troika

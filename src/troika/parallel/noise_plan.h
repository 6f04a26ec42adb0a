// Which dimension of a tensor holds the samples, for every place in a model where noise is drawn. Layers may
// turn their tensors as they like inside (recurrent layers work time first, attention merges samples and
// heads), so sizes alone don't tell: with as many time steps as samples they are the same either way. Hence a
// trial, once, when a place is first met: the model runs without noise and gradient on a few samples, each
// given twice. The dimension that shrank holds the samples; where it holds something else too, the two halves
// are equal in the right order only. Threading: a plan belongs to its model's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "troika/parallel/layer.h"
#include "troika/parallel/noise_mask.h"
#include "troika/parallel/step_context.h"

namespace troika {

/// What one draw is about.
struct NoiseSite {
  enum class Kind {
    samples,  // in `dimension`
    shared,   // the same numbers for all samples, such as dropped weights
    unknown,
  };
  Kind kind = Kind::unknown;
  size_t dimension = 0;
  bool samples_last = false;   // the dimension is [others, samples], not [samples, others]
  std::vector<int64_t> sizes;  // as first met
};

/// What a trial saw of one draw.
struct NoiseTrial {
  std::vector<int64_t> sizes;
  std::vector<bool> is_samples_last, is_neither;  // by dimension: the order in which the halves are equal
};

class NoisePlan {
 public:
  /// By layer and number of the draw; null if not met yet.
  const NoiseSite* find(uint64_t layer, uint64_t draw) const;
  const NoiseSite& set(uint64_t layer, uint64_t draw, NoiseSite site);

 private:
  std::unordered_map<uint64_t, std::vector<std::optional<NoiseSite>>> sites_;
};

/// A forward over a whole model on this thread; `again` runs it on other inputs of the same kind. Restoring
/// what a forward changes in the model (running statistics) is up to `again`.
class ForwardScope {
 public:
  ForwardScope(const Tensors& inputs, const std::function<void(const Tensors&)>& again);
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  ~ForwardScope();

  struct Present;

 private:
  std::unique_ptr<Present> present_;
  Present* before_;
};

/// The forward of one layer: a LayerScope that also says where its draws are planned.
class NoisyLayerScope {
 public:
  NoisyLayerScope(NoisePlan& plan, const std::string& name);
  NoisyLayerScope(const NoisyLayerScope&) = delete;
  NoisyLayerScope& operator=(const NoisyLayerScope&) = delete;
  ~NoisyLayerScope();

  struct Present {
    NoisePlan* plan = nullptr;
    const std::string* name = nullptr;
    uint64_t hash = 0;
  };

 private:
  explicit NoisyLayerScope(const Present& layer);

  LayerScope scope_;
  Present before_;
};

/// Whether this thread runs a trial: then there is no noise, and each draw calls note_trial().
bool in_noise_trial();
void note_trial(const at::Tensor& tensor);

/// At the end of a layer's forward: as many draws as in the trial, if there was one. Throws as below: noise
/// that is drawn sample by sample can't be told from noise that all samples share.
void check_draws_of_layer();

/// Where the samples are in the noise that is about to be drawn, of these sizes. Needs a StepScope. Throws
/// UsageError naming the layer if it can't be told and there is more than one rank; on one rank such noise is
/// that of the piece as a whole.
NoiseLayout next_noise_layout(at::IntArrayRef sizes);

}  // namespace troika

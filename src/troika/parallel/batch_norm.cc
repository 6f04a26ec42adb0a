#include "troika/parallel/batch_norm.h"

#include <ATen/ops/batch_norm_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/instance_norm_ops.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/library.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <algorithm>
#include <optional>

#include "troika/base/error.h"
#include "troika/parallel/step_context.h"

namespace troika {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

struct Present {
  const torch::nn::Module* layer = nullptr;
  bool instance_norm = false;  // torch computes it by a batch_norm over one sample
};
thread_local Present present;

/// A module of torch's that keeps running statistics.
struct Tracking {
  at::Tensor counter;
  bool cumulative = false;  // momentum = none
};

template <typename Module>
std::optional<Tracking> if_tracks(const torch::nn::Module& module, const at::Tensor& running_mean) {
  const auto* norm = dynamic_cast<const Module*>(&module);
  if (norm == nullptr || !norm->running_mean.is_same(running_mean)) return std::nullopt;
  return Tracking{norm->num_batches_tracked, !norm->options.momentum().has_value()};
}

/// Null if no BatchNorm of the present layer has this buffer: then the user's own code keeps it.
std::optional<Tracking> find_tracking(const at::Tensor& running_mean) {
  if (present.layer == nullptr || !running_mean.defined()) return std::nullopt;
  for (const auto& shared : present.layer->modules()) {
    const torch::nn::Module& module = *shared;
    auto found = if_tracks<torch::nn::BatchNorm1dImpl>(module, running_mean);
    if (!found) found = if_tracks<torch::nn::BatchNorm2dImpl>(module, running_mean);
    if (!found) found = if_tracks<torch::nn::BatchNorm3dImpl>(module, running_mean);
    if (found) return found;
  }
  return std::nullopt;
}

/// Everything of one call but its input and its running statistics.
struct Call {
  c10::DispatchKeySet keys;
  const MaybeTensor& weight;
  const MaybeTensor& bias;
  double momentum, epsilon;
  bool cudnn;

  at::Tensor operator()(const at::Tensor& input, const MaybeTensor& mean, const MaybeTensor& variance,
                        double with_momentum, bool training = true) const {
    return at::_ops::batch_norm::redispatch(keys, input, weight, bias, mean, variance, training,
                                            with_momentum, epsilon, cudnn);
  }
};

/// The groups of the step's piece as ranges of the input's first dimension.
std::vector<Range> groups_of(const at::Tensor& input, const StepContext& context) {
  const Range samples = context.samples;
  const int64_t group = context.batch_norm_group;
  TORCH_CHECK(group == 0 ? samples.begin == 0 : samples.begin % group == 0,
              "this piece of the batch starts at sample ", samples.begin,
              ", inside a group of its BatchNorm: deal whole groups to ranks and micro-batches");
  if (group == 0 || samples.size() <= group) return {{0, input.size(0)}};
  TORCH_CHECK(input.size(0) == samples.size(), "its BatchNorm gets an input of shape ", input.sizes(),
              " for ", samples.size(), " samples, so it can't tell the groups of ", group,
              " samples apart: give it [samples, channels, ...]");
  std::vector<Range> groups;
  for (int64_t begin = 0; begin < samples.size(); begin += group) {
    groups.push_back({begin, std::min(begin + group, samples.size())});
  }
  return groups;
}

void refuse_single_values(const at::Tensor& part, const Range& rows, const StepContext& context) {
  TORCH_CHECK(part.numel() != part.size(1), "Expected more than 1 value per channel when training, got ",
              "sample ", context.samples.begin + rows.begin);
}

/// Running statistics as a call finds them.
struct Running {
  at::Tensor mean, variance;
  at::Tensor counter;  // of a module of torch's
  bool cumulative = false;
};

/// Torch's own kernel takes the group into the running statistics.
at::Tensor normalise_alone(const Call& call, const at::Tensor& part, const Running& running) {
  double momentum = call.momentum;
  if (running.counter.defined()) {
    running.counter.add_(1);
    if (running.cumulative) momentum = 1.0 / running.counter.item<double>();
  }
  return call(part, running.mean, running.variance, momentum);
}

at::Tensor normalise_and_record(const Call& call, const at::Tensor& part, const Running& running,
                                int64_t group, BatchNormLog& log) {
  BatchNormUpdate update{
      running.mean, running.variance, running.counter, running.cumulative, call.momentum, group, {}, {}};
  // With momentum 1 the kernel leaves the group's own statistics there.
  update.mean = at::zeros_like(running.mean.defined() ? running.mean : running.variance);
  update.variance = at::zeros_like(update.mean);
  at::Tensor output = call(part, update.mean, update.variance, 1.0);
  log.record(update);
  return output;
}

at::Tensor normalise(const Call& call, const at::Tensor& input, const MaybeTensor& running_mean,
                     const MaybeTensor& running_var, const StepContext& context) {
  const std::vector<Range> groups = groups_of(input, context);
  Running running{running_mean.value_or(at::Tensor()), running_var.value_or(at::Tensor()), {}, false};
  if (const std::optional<Tracking> module = find_tracking(running.mean)) {
    running.counter = module->counter;
    running.cumulative = module->cumulative;
    // The module has counted this forward; from here on groups are counted.
    if (running.counter.defined()) running.counter.sub_(1);
  }
  const bool tracks = running.mean.defined() || running.variance.defined();
  const bool alone = tracks && context.batch_norm == nullptr;
  // Backward keeps what the kernel gets, and nobody may write it until then.
  Running copies = running;
  if (alone && running.mean.defined()) copies.mean = running.mean.clone();
  if (alone && running.variance.defined()) copies.variance = running.variance.clone();
  const int64_t first = context.batch_norm_group == 0 ? 0 : context.samples.begin / context.batch_norm_group;
  Tensors outputs;
  for (size_t g = 0; g < groups.size(); ++g) {
    const at::Tensor part = groups.size() == 1 ? input : input.narrow(0, groups[g].begin, groups[g].size());
    refuse_single_values(part, groups[g], context);
    if (!tracks) {
      outputs.push_back(call(part, running_mean, running_var, call.momentum));
    } else if (alone) {
      outputs.push_back(normalise_alone(call, part, copies));
    } else {
      outputs.push_back(
          normalise_and_record(call, part, running, first + static_cast<int64_t>(g), *context.batch_norm));
    }
  }
  if (alone && running.mean.defined()) running.mean.copy_(copies.mean);
  if (alone && running.variance.defined()) running.variance.copy_(copies.variance);
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
}

template <typename Module>
bool keeps_statistics(const torch::nn::Module& module) {
  const auto* norm = dynamic_cast<const Module*>(&module);
  return norm != nullptr && norm->running_mean.defined();
}

c10::DispatchKeySet below_autograd(c10::DispatchKeySet keys) { return keys & c10::after_autograd_keyset; }

at::Tensor batch_norm(c10::DispatchKeySet keys, const at::Tensor& input, const MaybeTensor& weight,
                      const MaybeTensor& bias, const MaybeTensor& running_mean,
                      const MaybeTensor& running_var, bool training, double momentum, double epsilon,
                      bool cudnn) {
  const Call call{below_autograd(keys), weight, bias, momentum, epsilon, cudnn};
  const StepContext* const context = current_step();
  if (context == nullptr || !training || present.instance_norm) {
    return call(input, running_mean, running_var, momentum, training);
  }
  return normalise(call, input, running_mean, running_var, *context);
}

at::Tensor instance_norm(c10::DispatchKeySet keys, const at::Tensor& input, const MaybeTensor& weight,
                         const MaybeTensor& bias, const MaybeTensor& running_mean,
                         const MaybeTensor& running_var, bool use_input_stats, double momentum,
                         double epsilon, bool cudnn) {
  struct Inside {
    bool before = std::exchange(present.instance_norm, true);
    ~Inside() { present.instance_norm = before; }
  } inside;
  return at::_ops::instance_norm::redispatch(below_autograd(keys), input, weight, bias, running_mean,
                                             running_var, use_input_stats, momentum, epsilon, cudnn);
}

// Both are made of other operators, which do the autograd part: a kernel on the alias key Autograd would not
// be called.
void register_kernels(torch::Library& library) {
  library.impl("batch_norm", batch_norm);
  library.impl("instance_norm", instance_norm);
}
TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) { register_kernels(library); }
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) { register_kernels(library); }

}  // namespace

std::string first_tracking_instance_norm(const Model& model) {
  for (const auto& [name, layer] : model.layers()) {
    for (const auto& item : layer.module->named_modules()) {
      if (keeps_statistics<torch::nn::InstanceNorm1dImpl>(*item.value()) ||
          keeps_statistics<torch::nn::InstanceNorm2dImpl>(*item.value()) ||
          keeps_statistics<torch::nn::InstanceNorm3dImpl>(*item.value())) {
        return name + (name.empty() || item.key().empty() ? "" : ".") + item.key();
      }
    }
  }
  return "";
}

BatchNormScope::BatchNormScope(const torch::nn::Module& module) : before_(present.layer) {
  present.layer = &module;
}
BatchNormScope::~BatchNormScope() { present.layer = before_; }

std::string BatchNormScope::explain(const std::string& text) const {
  const StepContext* const context = current_step();
  if (context == nullptr || text.find("Expected more than 1 value per channel") == std::string::npos)
    return text;
  const Range samples = context->samples;
  const int64_t size = context->batch_norm_group;
  return fmt::format(
      "its BatchNorm gets a group of 1 sample with 1 value per channel, which has no variance (sample {} of "
      "this "
      "batch; {}). Choose the batch size or batch_norm_group so that at least 2 samples are in the last "
      "group "
      "of every batch, the last batch of an epoch too",
      samples.end - 1,
      size == 0 ? std::string("the whole batch is one group") : fmt::format("groups have {}", size));
}

}  // namespace troika

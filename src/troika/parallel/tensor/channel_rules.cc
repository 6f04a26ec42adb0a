// The rules of torch's layers of channels: convolutions, by the channels that go out or come in, and norms
// that look at each channel, or group of channels, alone.
#include <ATen/ops/group_norm.h>
#include <torch/nn/functional/conv.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>

#include "troika/base/error.h"
#include "troika/parallel/tensor/peer_functions.h"
#include "troika/parallel/tensor/torch_rules.h"

namespace troika {
namespace {

constexpr char kChannels[] = "channels", kInputChannels[] = "input channels";

template <typename Options>
bool is_zero_padded(const Options& options) {
  return std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode());
}

template <size_t dims, typename Conv>
std::vector<SplitWay> ways_of_convolution(const Conv& conv, int ranks) {
  const auto& options = conv.options;
  if (options.groups() != 1 || !is_zero_padded(options)) return {};
  const int64_t in = options.in_channels(), out = options.out_channels();
  constexpr int kDim = -static_cast<int>(dims) - 1;
  std::vector<SplitWay> ways;
  if (out >= ranks) {
    SplitWay way{kChannels, {}, {kDim, out}, {{"weight", {0, out}}}, in, in};
    if (options.bias()) way.cuts.push_back({"bias", {0, out}});
    ways.push_back(way);
  }
  if (in >= ranks) {
    const int64_t longest = share({0, in}, ranks, 0).size();
    ways.push_back({kInputChannels, {}, {}, {{"weight", {1, in}}}, out + longest, longest});
    ways.push_back({kInputChannels, {kDim, in}, {}, {{"weight", {1, in}}}, out, 0});
  }
  return ways;
}

template <size_t dims, typename Conv>
at::Tensor without_bias(const Conv& conv, const at::Tensor& x) {
  const auto& o = conv.options;
  namespace functional = torch::nn::functional::detail;
  if constexpr (dims == 1) {
    return functional::conv1d(x, conv.weight, {}, o.stride(), o.padding(), o.dilation(), 1);
  } else if constexpr (dims == 2) {
    return functional::conv2d(x, conv.weight, {}, o.stride(), o.padding(), o.dilation(), 1);
  } else {
    return functional::conv3d(x, conv.weight, {}, o.stride(), o.padding(), o.dilation(), 1);
  }
}

template <size_t dims, typename Conv>
ForwardFunction convolution_forward(const std::shared_ptr<Conv>& conv, const SplitWay& way,
                                    TensorAxis& axis) {
  constexpr int64_t kDim = -static_cast<int64_t>(dims) - 1;
  if (way.name == kChannels) {
    return [conv, &axis](const Tensors& in) -> Tensors { return {conv->forward(to_slices(in.at(0), axis))}; };
  }
  return [conv, &axis, takes_whole = way.in.is_whole()](const Tensors& in) -> Tensors {
    const at::Tensor slice = takes_whole ? take_slice(in.at(0), kDim, axis) : in.at(0);
    const at::Tensor sum = sum_parts(without_bias<dims>(*conv, slice), axis);
    if (!conv->bias.defined()) return {sum};
    std::vector<int64_t> sizes(dims + 1, 1);
    sizes[0] = -1;
    return {sum + conv->bias.view(sizes)};
  };
}

/// Calls `use` with the module as what it is, and with the number of dimensions behind the channels.
template <typename Use>
auto with_convolution(torch::nn::Module& module, const Use& use) {
  if (auto* conv = dynamic_cast<torch::nn::Conv1dImpl*>(&module))
    return use(*conv, std::integral_constant<size_t, 1>());
  if (auto* conv = dynamic_cast<torch::nn::Conv2dImpl*>(&module))
    return use(*conv, std::integral_constant<size_t, 2>());
  return use(dynamic_cast<torch::nn::Conv3dImpl&>(module), std::integral_constant<size_t, 3>());
}

// Slices may come along another dimension than that of the channels: of [n, channels, time] by a linear layer
// before it.
at::Tensor with_channels(const at::Tensor& x, int dim, const char* kind) {
  if (x.dim() + dim != 1) {
    fail_usage(
        "a {} gets slices along dimension {} of [{}], which isn't that of its channels: leave this layer "
        "whole, or the one before it",
        kind, x.dim() + dim, fmt::join(x.sizes(), ", "));
  }
  return x;
}

SplitWay slices_of_channels(int dim, const Cut& cut, const std::vector<std::string>& names) {
  const Spread spread{dim, cut.whole_size()};
  SplitWay way{kChannels, spread, spread, {}, 0, 0};
  for (const std::string& name : names) way.cuts.push_back({name, cut});
  return way;
}

}  // namespace

std::vector<SplitWay> convolution_ways(const torch::nn::Module& module, int ranks) {
  return with_convolution(const_cast<torch::nn::Module&>(module), [&](const auto& conv, auto dims) {
    return ways_of_convolution<decltype(dims)::value>(conv, ranks);
  });
}

ForwardFunction split_convolution_forward(const ModulePointer& module, const SplitWay& way,
                                          TensorAxis& axis) {
  return with_convolution(*module, [&](auto& conv, auto dims) {
    const auto shared = std::shared_ptr<std::remove_reference_t<decltype(conv)>>(module, &conv);
    return convolution_forward<decltype(dims)::value>(shared, way, axis);
  });
}

// BatchNorm1d's channels come last, or before the time.
std::vector<SplitWay> batch_norm_ways(const torch::nn::Module& module, int ranks) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(item.key());
  int64_t channels = 0;
  std::vector<int> dims;
  const auto look = [&](const auto* norm, std::vector<int> where) {
    if (norm == nullptr) return;
    channels = norm->options.num_features();
    dims = std::move(where);
    if (norm->options.track_running_stats()) names.insert(names.end(), {"running_mean", "running_var"});
  };
  look(dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module), {-1, -2});
  look(dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module), {-3});
  look(dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module), {-4});
  std::vector<SplitWay> ways;
  if (channels < ranks) return ways;
  for (const int dim : dims) ways.push_back(slices_of_channels(dim, {0, channels}, names));
  return ways;
}

ForwardFunction split_batch_norm_forward(const ModulePointer& module, const SplitWay& way, TensorAxis&) {
  const auto call = [dim = *way.in.dim](const auto& norm) -> ForwardFunction {
    return [norm, dim](const Tensors& in) -> Tensors {
      return {norm->forward(with_channels(in.at(0), dim, "BatchNorm"))};
    };
  };
  if (const auto norm = std::dynamic_pointer_cast<torch::nn::BatchNorm1dImpl>(module)) return call(norm);
  if (const auto norm = std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(module)) return call(norm);
  return call(std::dynamic_pointer_cast<torch::nn::BatchNorm3dImpl>(module));
}

// Where every rank's channels are whole groups.
std::vector<SplitWay> group_norm_ways(const torch::nn::Module& module, int ranks) {
  const auto& options = dynamic_cast<const torch::nn::GroupNormImpl&>(module).options;
  const int64_t groups = options.num_groups(), channels = options.num_channels();
  if (groups < ranks) return {};
  for (int rank = 0; rank < ranks; ++rank) {
    if (share({0, groups}, ranks, rank).begin * (channels / groups) !=
        share({0, channels}, ranks, rank).begin)
      return {};
  }
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(item.key());
  std::vector<SplitWay> ways;
  for (const int dim : {-1, -2, -3, -4})
    ways.push_back(slices_of_channels(dim, {0, groups, {channels / groups}}, names));
  return ways;
}

ForwardFunction split_group_norm_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis) {
  const auto norm = std::dynamic_pointer_cast<torch::nn::GroupNormImpl>(module);
  const int64_t groups = axis.my_share(norm->options.num_groups()).size();
  return [norm, groups, dim = *way.in.dim](const Tensors& in) -> Tensors {
    return {at::group_norm(with_channels(in.at(0), dim, "GroupNorm"), groups, norm->weight, norm->bias,
                           norm->options.eps())};
  };
}

}  // namespace troika

// The rules of torch's own modules, one pair of functions each: the ways that it can be split, and a forward
// in its place that works with slices. Internal to this folder. Threading: pure functions.
#pragma once

#include <functional>
#include <memory>

#include "troika/parallel/layer.h"
#include "troika/parallel/tensor/splittable.h"

namespace troika {

using ForwardFunction = std::function<Tensors(const Tensors&)>;
using ModulePointer = std::shared_ptr<torch::nn::Module>;

std::vector<SplitWay> linear_ways(const torch::nn::Module& module, int ranks);
ForwardFunction split_linear_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis);

std::vector<SplitWay> embedding_ways(const torch::nn::Module& module, int ranks);
ForwardFunction split_embedding_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis);

// Conv1d, Conv2d and Conv3d; BatchNorm1d to 3d (channel_rules.cc).
std::vector<SplitWay> convolution_ways(const torch::nn::Module& module, int ranks);
ForwardFunction split_convolution_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis);

std::vector<SplitWay> batch_norm_ways(const torch::nn::Module& module, int ranks);
ForwardFunction split_batch_norm_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis);

std::vector<SplitWay> group_norm_ways(const torch::nn::Module& module, int ranks);
ForwardFunction split_group_norm_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis);

// Sequential (chain_rule.cc).
std::vector<SplitWay> chain_ways(const torch::nn::Module& module, int ranks);
ForwardFunction split_chain_forward(const ModulePointer& module, const SplitWay& way, TensorAxis& axis);

}  // namespace troika

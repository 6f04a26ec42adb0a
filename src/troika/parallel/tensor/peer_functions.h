// What tensor peers do with activations, with exact gradients. Two kinds of tensor: a whole one, which every
// rank has with the same bits, and whose gradient is whole too; and one that differs between ranks: a slice,
// or a part of a sum. Each function here goes from one kind to the other, and its gradient the way back
// (Shoeybi et al., 2019, arXiv:1909.08053; the scattered forms: Korthikanti et al., 2022, arXiv:2205.05198).
//
// Threading: of the rank's thread, collective over the axis, forward and backward alike: every rank calls the
// same ones in the same order. On an axis of one rank all of them give their input.
#pragma once

#include <ATen/core/Tensor.h>

#include "troika/parallel/tensor/tensor_axis.h"

namespace troika {

/// A whole tensor that goes into work on slices: the identity; backward adds up the ranks' gradients.
at::Tensor to_slices(const at::Tensor& whole, TensorAxis& axis);

/// Parts of a sum: their sum, whole; backward is the identity.
at::Tensor sum_parts(const at::Tensor& part, TensorAxis& axis);

/// This rank's share of a whole tensor; backward puts the slices together.
at::Tensor take_slice(const at::Tensor& whole, int64_t dim, TensorAxis& axis);

/// Slices put together into a whole tensor that all ranks work on alike; backward takes this rank's slice.
at::Tensor join_slices(const at::Tensor& slice, int64_t dim, int64_t whole, TensorAxis& axis);

/// Slices put together for work on slices, where the ranks' gradients differ: backward adds them up and takes
/// this rank's share. The next is its mirror image.
at::Tensor gather_for_slices(const at::Tensor& slice, int64_t dim, int64_t whole, TensorAxis& axis);
at::Tensor sum_parts_to_slices(const at::Tensor& part, int64_t dim, TensorAxis& axis);

}  // namespace troika

// Products with a slice of a weight matrix (Shoeybi et al., 2019, arXiv:1909.08053), communication overlapped
// with the work beside it where that pays. As peer_functions.h around at::linear, to the bit.
// Threading: of the rank's thread, collective over the axis, forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include "troika/parallel/tensor/tensor_axis.h"

namespace troika {

/// `weight` [slice of out, in]: from a whole input [..., in] this rank's slice of the outputs. Backward adds
/// up the input's gradient while it computes the weight's. `bias`: this rank's slice, or undefined.
at::Tensor linear_by_columns(const at::Tensor& whole, const at::Tensor& weight, const at::Tensor& bias,
                             TensorAxis& axis);

/// `weight` [out, slice of in]: from a slice of the inputs [..., slice of in] the whole outputs, which are
/// sums over the ranks: those of one chunk of rows while the next is computed. `bias`: the whole one, added
/// once, or undefined.
at::Tensor linear_by_rows(const at::Tensor& slice, const at::Tensor& weight, const at::Tensor& bias,
                          TensorAxis& axis);

/// How many chunks of rows linear_by_rows() cuts a product into: 1 where a chunk's product would take less
/// time than starting its sum costs.
int64_t row_chunks(int64_t rows, int64_t in, int64_t out);

}  // namespace troika

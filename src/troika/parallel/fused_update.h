// The update as one pass over memory: sum the ranks' gradients in rank order, divide by the global batch's
// weight, apply the optimizer, write the weights. Elementwise and without fused multiply-adds, so any cut
// into ranges and any instruction set gives the same bits. Knows no tensor. Threading: disjoint ranges may be
// updated by different threads at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "troika/base/split.h"
#include "troika/parallel/optimizer.h"

namespace troika {

/// The flat buffers of one update; all have the same layout.
struct UpdateBuffers {
  bool is_double = false;  // else float
  void* weights = nullptr;
  void* moments[2] = {};  // as many as moment_names() has
  void* mean = nullptr;   // where to write the mean gradient before clipping, or null
};

/// An optimizer's numbers for parameters that are at the same step, from 1 (Adam's bias correction), and the
/// weight of the global batch.
struct UpdateNumbers {
  Optimizer optimizer;
  double weight = 1;
  double step_size = 0;        // Adam: learning rate / (1 - beta1^step)
  double root_correction = 1;  // Adam: sqrt(1 - beta2^step)
  double scale = 1;            // what clipping leaves of the mean gradient
};
UpdateNumbers update_numbers(const Optimizer& optimizer, double weight, int64_t step);

/// What the optimizer remembers for each weight, by the names that a checkpoint uses: {}, {"momentum"} or
/// {"exp_avg", "exp_avg_sq"}.
std::vector<std::string> moment_names(const Optimizer& optimizer);

/// Updates `elements` of the flat buffers, all of one parameter whose first element is `parameter_begin`.
/// `gradients` has each rank's gradient of that parameter, in rank order; null counts as zeros. False if one
/// of the mean gradients is not finite (the weights are written all the same: to know before would cost a
/// pass of its own).
bool fused_update(const UpdateBuffers& buffers, const UpdateNumbers& numbers, Range elements,
                  int64_t parameter_begin, std::span<const void* const> gradients);

/// The sum of the squares, in float64, of the mean gradients that fused_update would take for `elements`. Its
/// order depends on nothing but the number of elements. Not finite if one of them isn't.
double sum_of_squares(bool is_double, double weight, Range elements, int64_t parameter_begin,
                      std::span<const void* const> gradients);

}  // namespace troika

// The update as one pass over memory: sum the ranks' gradients in rank order, divide by the global batch's
// weight, apply the optimizer, write the weights, zero the gradients. Elementwise and without fused
// multiply-adds, so any cut into ranges and any instruction set gives the same bits. Knows no tensor.
// Threading: disjoint ranges may be updated by different threads at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "troika/base/split.h"
#include "troika/parallel/flat_layout.h"
#include "troika/parallel/optimizer.h"

namespace troika {

/// The flat buffers of one update; each starts on 64 bytes and has the same layout.
struct UpdateBuffers {
  bool is_double = false;  // else float
  void* weights = nullptr;
  void* moments[2] = {};             // as many as moment_names() has
  std::span<void* const> gradients;  // of each rank, in rank order; zeroed
  void* mean = nullptr;              // where to write the mean gradient, or null
};

/// Elements that are updated with the same numbers.
struct UpdateRun {
  Range elements;
  int64_t optimizer_step = 1;  // of these parameters, from 1 (Adam's bias correction)
};

/// What the optimizer remembers for each weight, by the names that a checkpoint uses: {}, {"momentum"} or
/// {"exp_avg", "exp_avg_sq"}.
std::vector<std::string> moment_names(const Optimizer& optimizer);

/// Neighbouring parameters with touched[i] != 0 and the same optimizer step become one run; the others are
/// left out.
std::vector<UpdateRun> update_runs(const FlatLayout& layout, std::span<const uint8_t> touched,
                                   std::span<const int64_t> optimizer_steps, const Optimizer& optimizer);

/// Updates run.elements. False if one of the mean gradients is not finite (the weights are written all the
/// same: to know before would cost a pass of its own).
bool fused_update(const UpdateBuffers& buffers, const Optimizer& optimizer, double weight,
                  const UpdateRun& run);

}  // namespace troika

#include "troika/parallel/gradient_sync.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace troika {

// A thread's part of the pass; below it a second thread costs more than it saves.
constexpr int64_t kGrainElements = 1 << 15;

void GradientSync::begin_step() { std::fill(buffers_.touched.begin(), buffers_.touched.end(), uint8_t{0}); }

void GradientSync::discard() { buffers_.gradient.zero_(); }

FlatBuffers own_flat_buffers(const Model& model, at::ScalarType dtype) {
  FlatBuffers buffers;
  buffers.layout = layout_of(model.parameters(), dtype);
  buffers.weights = empty_flat(buffers.layout, dtype);
  for (size_t i = 0; i < buffers.layout.entries.size(); ++i) {
    const auto& entry = buffers.layout.entries[i];
    move_into(buffers.weights, entry, model.parameters()[i].tensor);
    zero_range(buffers.weights, {entry.offset + entry.size, buffers.layout.padded(i).end});
  }
  buffers.gradient = zero_flat(buffers.layout, dtype);
  bind_gradients(model.parameters(), buffers.layout, buffers.gradient);
  buffers.touched.assign(buffers.layout.entries.size(), 0);
  return buffers;
}

UpdateBuffers update_buffers(const FlatBuffers& buffers, std::span<void* const> gradients,
                             const at::Tensor& mean) {
  UpdateBuffers out;
  out.is_double = buffers.weights.scalar_type() == at::kDouble;
  out.weights = buffers.weights.data_ptr();
  for (size_t i = 0; i < buffers.moments.size(); ++i) out.moments[i] = buffers.moments[i].data_ptr();
  out.gradients = gradients;
  out.mean = mean.defined() ? mean.data_ptr() : nullptr;
  return out;
}

bool update_slice(const UpdateBuffers& buffers, const Optimizer& optimizer, double weight,
                  std::span<const UpdateRun> runs, Range slice) {
  const int64_t line = 64 / (buffers.is_double ? 8 : 4);
  std::atomic<bool> finite = true;
  for (const UpdateRun& run : runs) {
    const Range mine{std::max(run.elements.begin, slice.begin), std::min(run.elements.end, slice.end)};
    if (mine.size() <= 0) continue;
    at::parallel_for(0, mine.size() / line, kGrainElements / line, [&](int64_t begin, int64_t end) {
      UpdateRun part = run;
      part.elements = {mine.begin + begin * line, mine.begin + end * line};
      if (!fused_update(buffers, optimizer, weight, part)) finite.store(false, std::memory_order_relaxed);
    });
  }
  return finite;
}

void zero_outside_runs(const at::Tensor& mean, std::span<const UpdateRun> runs, Range slice) {
  int64_t at = slice.begin;
  for (const UpdateRun& run : runs) {
    const int64_t end = std::min(run.elements.begin, slice.end);
    if (end > at) zero_range(mean, {at, end});
    at = std::max(at, run.elements.end);
  }
  if (at < slice.end) zero_range(mean, {at, slice.end});
}

}  // namespace troika

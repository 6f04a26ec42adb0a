#include "troika/parallel/gradient_sync.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>

#include "troika/base/error.h"
#include "troika/parallel/intra_op.h"

namespace troika {

// A thread's part of the pass; below it a second thread costs more than it saves.
constexpr int64_t kGrainElements = 1 << 15;

namespace {

/// The numbers of an update for one kind of parameter; those next to each other are mostly at one step.
class NumbersOfStep {
 public:
  NumbersOfStep(const Update& update, bool decays) : update_(update), optimizer_(update.optimizer) {
    if (!decays) optimizer_.weight_decay = 0;
  }

  const UpdateNumbers& at(int64_t step) {
    if (step != step_) {
      step_ = step;
      numbers_ = update_numbers(optimizer_, update_.weight, step);
      numbers_.scale = update_.scale;
    }
    return numbers_;
  }

 private:
  const Update& update_;
  Optimizer optimizer_;
  int64_t step_ = 0;
  UpdateNumbers numbers_;
};

// A matrix's scale means something; pulling biases and norms to zero would only bias them.
bool decays(const FlatLayout::Entry& entry) { return entry.shape.size() >= 2; }

}  // namespace

FlatBuffers own_flat_buffers(const Model& model, at::ScalarType dtype) {
  FlatBuffers buffers;
  buffers.layout = layout_of(model.parameters(), dtype);
  buffers.weights = empty_flat(buffers.layout, dtype);
  for (size_t i = 0; i < buffers.layout.entries.size(); ++i) {
    const auto& entry = buffers.layout.entries[i];
    move_into(buffers.weights, entry, model.parameters()[i].tensor);
    zero_range(buffers.weights, {entry.offset + entry.size, buffers.layout.padded(i).end});
  }
  return buffers;
}

void GradientSync::expect_gradients_apart() { parameters_ = views_of(buffers_.weights, buffers_.layout); }

void GradientSync::hand_over(std::vector<at::Tensor> gradients) {
  TROIKA_ASSERT(gradients.size() == parameters_.size(), fmt::format("{} gradients", gradients.size()));
  for (size_t i = 0; i < gradients.size(); ++i) {
    parameters_[i].tensor.mutable_grad() = std::move(gradients[i]);
  }
}

void GradientSync::write_next_to(const at::Tensor& weights) {
  if (weights.is_same(buffers_.weights)) return;
  const at::NoGradGuard no_grad;
  weights.narrow(0, written_.begin, written_.size())
      .copy_(buffers_.weights.narrow(0, written_.begin, written_.size()));
  buffers_.weights = weights;
}

bool update_slice(const FlatBuffers& buffers, const Update& update, std::span<const void* const> gradients,
                  const at::Tensor& mean, Range slice) {
  UpdateBuffers memory;
  memory.is_double = buffers.weights.scalar_type() == at::kDouble;
  memory.weights = buffers.weights.data_ptr();
  for (size_t i = 0; i < buffers.moments.size(); ++i) memory.moments[i] = buffers.moments[i].data_ptr();
  if (mean.defined()) {
    zero_range(mean, slice);
    memory.mean = mean.data_ptr();
  }

  const auto& entries = buffers.layout.entries;
  const int64_t line = buffers.layout.line;
  if (entries.empty()) return true;
  const size_t ranks = gradients.size() / entries.size();
  std::atomic<bool> finite = true;
  NumbersOfStep of_matrices(update, true), of_others(update, false);
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& entry = entries[i];
    const Range mine{std::max(entry.offset, slice.begin), std::min(entry.offset + entry.size, slice.end)};
    const auto of_ranks = gradients.subspan(i * ranks, ranks);
    if (mine.size() <= 0 || std::all_of(of_ranks.begin(), of_ranks.end(), [](const void* g) { return !g; }))
      continue;
    const UpdateNumbers& numbers = (decays(entry) ? of_matrices : of_others).at(update.optimizer_steps[i]);
    const int64_t lines = (mine.size() + line - 1) / line;
    in_parallel(lines, kGrainElements / line, [&](int64_t begin, int64_t end) {
      const Range part{mine.begin + begin * line, std::min(mine.begin + end * line, mine.end)};
      if (!fused_update(memory, numbers, part, entry.offset, of_ranks)) {
        finite.store(false, std::memory_order_relaxed);
      }
    });
  }
  return finite;
}

}  // namespace troika

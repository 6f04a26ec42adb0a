#include "troika/parallel/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/parallel/fused_update.h"
#include "troika/parallel/intra_op.h"

namespace troika {
namespace {

// Elements: few enough to deal a small model out evenly, enough that the sums need no thought.
constexpr int64_t kNormBlock = 4096;
// A thread's part, as in update_slice.
constexpr int64_t kGrainBlocks = 8;
constexpr double kTiny = 1e-6;  // torch's

int64_t blocks_of(int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

}  // namespace

int64_t count_norm_blocks(const FlatLayout& layout) {
  int64_t count = 0;
  for (const auto& entry : layout.entries) count += blocks_of(entry.size);
  return count;
}

void add_norm_blocks(const FlatLayout& layout, bool is_double, double weight,
                     std::span<const void* const> gradients, Range slice, std::span<double> sums) {
  if (layout.entries.empty()) return;
  const size_t ranks = gradients.size() / layout.entries.size();
  int64_t before = 0;  // blocks of the parameters so far
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const auto& entry = layout.entries[i];
    const int64_t count = blocks_of(entry.size);
    const auto of_ranks = gradients.subspan(i * ranks, ranks);
    const bool touched = std::any_of(of_ranks.begin(), of_ranks.end(), [](const void* g) { return g; });
    const auto first_from = [&](int64_t element) {
      return std::clamp<int64_t>(blocks_of(std::max<int64_t>(element - entry.offset, 0)), 0, count);
    };
    const Range blocks{first_from(slice.begin), first_from(slice.end)};
    in_parallel(blocks.size(), kGrainBlocks, [&](int64_t begin, int64_t end) {
      for (int64_t block = blocks.begin + begin; block < blocks.begin + end; ++block) {
        const int64_t start = block * kNormBlock;
        const Range elements{entry.offset + start, entry.offset + std::min(start + kNormBlock, entry.size)};
        sums[static_cast<size_t>(before + block)] =
            touched ? sum_of_squares(is_double, weight, elements, entry.offset, of_ranks) : 0;
      }
    });
    before += count;
  }
}

std::vector<double> squares_of_parameters(const FlatLayout& layout, std::span<const double> sums) {
  std::vector<double> squares;
  size_t block = 0;
  for (const FlatLayout::Entry& entry : layout.entries) {
    double sum = 0;
    for (const size_t end = block + static_cast<size_t>(blocks_of(entry.size)); block < end; ++block) {
      sum += sums[block];
    }
    squares.push_back(sum);
  }
  return squares;
}

GradientNorm norm_of(std::span<const double> squares) {
  double total = 0;
  for (size_t i = 0; i < squares.size(); ++i) {
    total += squares[i];
    if (!std::isfinite(total)) return {0, static_cast<int64_t>(i)};
  }
  return {std::sqrt(total), -1};
}

double clip_scale(double norm, double clip_norm) { return std::min(1.0, clip_norm / (norm + kTiny)); }

}  // namespace troika

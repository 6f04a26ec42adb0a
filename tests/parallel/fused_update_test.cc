#include "troika/parallel/fused_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <new>
#include <random>

namespace troika {
namespace {

/// Flat buffers of `ranks` ranks with random numbers, aligned as the engine's are.
template <typename T>
struct Memory {
  explicit Memory(int64_t size, int ranks) : size(size) {
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    for (int k = 0; k < ranks + 4; ++k) {
      T* start = static_cast<T*>(::operator new(static_cast<size_t>(size) * sizeof(T), std::align_val_t(64)));
      for (int64_t i = 0; i < size; ++i) start[i] = static_cast<T>(normal(random));
      all.push_back(start);
    }
    for (int64_t i = 0; i < size; ++i) all[2][i] = std::abs(all[2][i]);  // a second moment
    gradients.assign(all.begin() + 4, all.end());
  }
  ~Memory() {
    for (T* start : all) ::operator delete(start, std::align_val_t(64));
  }
  UpdateBuffers buffers() {
    UpdateBuffers b;
    b.is_double = sizeof(T) == 8;
    b.weights = all[0];
    b.moments[0] = all[1];
    b.moments[1] = all[2];
    b.mean = all[3];
    b.gradients = gradients;
    return b;
  }
  int64_t size;
  std::vector<T*> all;
  std::vector<void*> gradients;
};

std::vector<Optimizer> optimizers() {
  Optimizer sgd, momentum, nesterov, adam, adamw;
  sgd.kind = momentum.kind = nesterov.kind = Optimizer::Kind::sgd;
  momentum.momentum = nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  adam.kind = Optimizer::Kind::adam;
  sgd.weight_decay = adam.weight_decay = adamw.weight_decay = 0.1;
  return {sgd, momentum, nesterov, adam, adamw};
}

template <typename T>
void expect_cuts_give_the_same_bits() {
  constexpr int64_t kSize = 4096 + 512;
  for (const Optimizer& optimizer : optimizers()) {
    for (const int ranks : {1, 2, 3, 5}) {
      Memory<T> whole(kSize, ranks), cut(kSize, ranks);
      EXPECT_TRUE(fused_update(whole.buffers(), optimizer, 7, {{0, kSize}, 3}));
      for (const Range part : {Range{4096, kSize}, Range{0, 48}, Range{48, 1072}, Range{1072, 4096}}) {
        EXPECT_TRUE(fused_update(cut.buffers(), optimizer, 7, {part, 3}));
      }
      for (size_t k = 0; k < whole.all.size(); ++k) {
        EXPECT_TRUE(std::equal(whole.all[k], whole.all[k] + kSize, cut.all[k])) << "buffer " << k;
      }
    }
  }
}

TEST(FusedUpdate, CutsGiveTheSameBitsInFloat) { expect_cuts_give_the_same_bits<float>(); }
TEST(FusedUpdate, CutsGiveTheSameBitsInDouble) { expect_cuts_give_the_same_bits<double>(); }

TEST(FusedUpdate, MeanIsTheSumInRankOrderOverTheWeightAndGradientsAreZeroed) {
  constexpr int64_t kSize = 96;
  Memory<float> memory(kSize, 3);
  std::vector<float> expected;
  for (int64_t i = 0; i < kSize; ++i) {
    const auto g = [&](size_t k) { return static_cast<float*>(memory.gradients[k])[i]; };
    expected.push_back(((g(0) + g(1)) + g(2)) / 5.0f);
  }
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::sgd;
  const std::vector<float> before(memory.all[0], memory.all[0] + kSize);
  fused_update(memory.buffers(), sgd, 5, {{0, kSize}, 1});
  for (int64_t i = 0; i < kSize; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(memory.all[3][i], expected[at]);
    EXPECT_EQ(memory.all[0][i], before[at] - static_cast<float>(sgd.learning_rate) * expected[at]);
    for (void* gradient : memory.gradients) EXPECT_EQ(static_cast<float*>(gradient)[i], 0.0f);
  }
}

TEST(FusedUpdate, SaysIfAGradientIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Memory<float> memory(1024, 2);
    static_cast<float*>(memory.gradients[1])[1000] = bad;
    EXPECT_TRUE(fused_update(memory.buffers(), {}, 1, {{0, 992}, 1}));
    EXPECT_FALSE(fused_update(memory.buffers(), {}, 1, {{992, 1024}, 1}));
  }
}

TEST(UpdateRuns, NeighboursWithTheSameStepAreOneRunAndUntouchedAreLeftOut) {
  const FlatLayout layout =
      make_flat_layout({{"a", {16}, 0, 0}, {"b", {3}, 0, 0}, {"c", {16}, 0, 0}, {"d", {16}, 0, 0}}, 4);
  const std::vector<uint8_t> all{1, 1, 1, 1}, some{1, 1, 0, 1};
  const std::vector<int64_t> same{2, 2, 2, 2}, later{2, 2, 2, 1};
  const Optimizer adamw;
  ASSERT_EQ(update_runs(layout, all, same, adamw).size(), 1u);
  EXPECT_EQ(update_runs(layout, all, same, adamw)[0].elements, (Range{0, 64}));
  const auto gap = update_runs(layout, some, later, adamw);
  ASSERT_EQ(gap.size(), 2u);
  EXPECT_EQ(gap[0].elements, (Range{0, 32}));
  EXPECT_EQ(gap[0].optimizer_step, 2);
  EXPECT_EQ(gap[1].elements, (Range{48, 64}));
  EXPECT_EQ(gap[1].optimizer_step, 1);
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::sgd;
  EXPECT_EQ(update_runs(layout, all, later, sgd).size(), 1u) << "sgd does not count steps";
}

}  // namespace
}  // namespace troika

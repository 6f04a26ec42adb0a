#include "troika/parallel/fused_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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
    return b;
  }
  int64_t size;
  std::vector<T*> all;
  std::vector<const void*> gradients;
};

template <typename T>
bool update(Memory<T>& memory, const Optimizer& optimizer, double weight, Range elements) {
  return fused_update(memory.buffers(), update_numbers(optimizer, weight, 3), elements, 0, memory.gradients);
}

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
      EXPECT_TRUE(update(whole, optimizer, 7, {0, kSize}));
      for (const Range part : {Range{4096, kSize}, Range{0, 48}, Range{48, 1072}, Range{1072, 4096}}) {
        EXPECT_TRUE(update(cut, optimizer, 7, part));
      }
      for (size_t k = 0; k < whole.all.size(); ++k) {
        EXPECT_TRUE(std::equal(whole.all[k], whole.all[k] + kSize, cut.all[k])) << "buffer " << k;
      }
    }
  }
}

TEST(FusedUpdate, CutsGiveTheSameBitsInFloat) { expect_cuts_give_the_same_bits<float>(); }
TEST(FusedUpdate, CutsGiveTheSameBitsInDouble) { expect_cuts_give_the_same_bits<double>(); }

TEST(FusedUpdate, MeanIsTheSumInRankOrderOverTheWeight) {
  constexpr int64_t kSize = 96;
  Memory<float> memory(kSize, 3);
  std::vector<float> expected;
  for (int64_t i = 0; i < kSize; ++i) {
    const auto g = [&](size_t k) { return static_cast<const float*>(memory.gradients[k])[i]; };
    expected.push_back(((g(0) + g(1)) + g(2)) / 5.0f);
  }
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::sgd;
  const std::vector<float> before(memory.all[0], memory.all[0] + kSize);
  update(memory, sgd, 5, {0, kSize});
  for (int64_t i = 0; i < kSize; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(memory.all[3][i], expected[at]);
    EXPECT_EQ(memory.all[0][i], before[at] - static_cast<float>(sgd.learning_rate) * expected[at]);
  }
}

// What a rank without samples contributes.
TEST(FusedUpdate, NoGradientCountsAsZerosToTheBit) {
  for (size_t without = 0; without < 3; ++without) {
    Memory<float> memory(128, 3), zeros(128, 3);
    for (Memory<float>* m : {&memory, &zeros}) {
      for (size_t k = 0; k < 3; ++k) m->all[4 + k][5] = -0.0f;
    }
    memory.gradients[without] = nullptr;
    std::fill_n(zeros.all[4 + without], 128, 0.0f);
    update(memory, {}, 7, {0, 128});
    update(zeros, {}, 7, {0, 128});
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(std::memcmp(memory.all[k], zeros.all[k], 128 * sizeof(float)), 0) << "buffer " << k;
    }
  }
}

// Clipping comes after the mean that is shown, and before what an optimizer remembers.
TEST(FusedUpdate, TheScaleIsOfTheMeanBeforeTheOptimizerSeesIt) {
  constexpr int64_t kSize = 1100;
  for (const Optimizer& optimizer : optimizers()) {
    Memory<float> scaled(kSize, 1), given(kSize, 1);
    UpdateNumbers numbers = update_numbers(optimizer, 8, 3);
    const std::vector<float> gradient(scaled.all[4], scaled.all[4] + kSize);
    for (int64_t i = 0; i < kSize; ++i) given.all[4][i] *= 0.25f;  // exact
    EXPECT_TRUE(fused_update(given.buffers(), numbers, {0, kSize}, 0, given.gradients));
    numbers.scale = 0.25;
    EXPECT_TRUE(fused_update(scaled.buffers(), numbers, {0, kSize}, 0, scaled.gradients));
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_TRUE(std::equal(scaled.all[k], scaled.all[k] + kSize, given.all[k])) << "buffer " << k;
    }
    for (size_t i = 0; i < kSize; ++i) EXPECT_EQ(scaled.all[3][i], gradient[i] / 8);
  }
}

TEST(FusedUpdate, SumOfSquaresIsOfTheMeansInFloat64) {
  constexpr int64_t kSize = 700;
  for (const int ranks : {1, 2, 3}) {
    const Memory<float> memory(kSize, ranks);
    double expected = 0;
    for (int64_t i = 0; i < kSize; ++i) {
      float sum = 0;
      for (const void* g : memory.gradients) sum += static_cast<const float*>(g)[i];
      const double mean = sum / 7.0f;
      expected += mean * mean;
    }
    EXPECT_NEAR(sum_of_squares(false, 7, {1000, 1000 + kSize}, 1000, memory.gradients), expected,
                1e-14 * expected);
  }
}

TEST(FusedUpdate, SaysIfAGradientIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Memory<float> memory(1024, 2);
    memory.all[5][1000] = bad;
    EXPECT_TRUE(update(memory, {}, 1, {0, 992}));
    EXPECT_FALSE(update(memory, {}, 1, {992, 1024}));
  }
}

}  // namespace
}  // namespace troika

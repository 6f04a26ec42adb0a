#include "troika/base/random.h"

#include <gtest/gtest.h>

#include <vector>

namespace troika {
namespace {

// The published known-answer tests of Random123's philox4x32-10 (kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Hash, KnownAnswer) { EXPECT_EQ(hash64(""), 0xef46db3751d8e999ull); }

TEST(Uniform, StaysInRangeWithTheRightMean) {
  double sum = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const double x = uniform(7, i);
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);  // five standard errors
}

TEST(Permutation, IsOneForEverySizeAndKey) {
  for (uint64_t size = 1; size <= 300; size += size < 20 ? 1 : 37) {
    for (uint64_t key = 0; key < 5; ++key) {
      const Permutation permutation(size, key);
      std::vector<bool> seen(size);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t image = permutation(i);
        ASSERT_LT(image, size);
        ASSERT_FALSE(seen[image]) << "size " << size << " key " << key;
        seen[image] = true;
      }
    }
  }
}

// A shuffle that left values near where they were would pass the test above.
TEST(Permutation, MovesThingsFarAndDependsOnTheKey) {
  const uint64_t size = 10000;
  const Permutation one(size, 1), two(size, 2);
  double moved = 0;
  int same = 0;
  for (uint64_t i = 0; i < size; ++i) {
    moved += std::abs(static_cast<double>(one(i)) - static_cast<double>(i));
    same += one(i) == two(i);
  }
  EXPECT_NEAR(moved / static_cast<double>(size), static_cast<double>(size) / 3,
              200);  // mean |U - V| of uniforms
  EXPECT_LT(same, 10);
}

}  // namespace
}  // namespace troika

// The arithmetic of collectives, without ranks.
#include "troika/comm/inproc/kernels.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/comm_buffer.h"

namespace troika::inproc {
namespace {

using troika::testing::Buffer;
using troika::testing::uneven_number;

std::vector<Buffer> sources_of(ElementType type, int ranks, int64_t count) {
  std::vector<Buffer> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    sources.emplace_back(type, count).fill([&](int64_t i) { return uneven_number(rank, i, 5); });
  }
  return sources;
}

std::vector<const void*> addresses(std::vector<Buffer>& buffers) {
  std::vector<const void*> addresses;
  for (Buffer& buffer : buffers) addresses.push_back(buffer.elements().data);
  return addresses;
}

TEST(Kernels, EveryInstructionSetGivesTheSameBits) {
  const Instructions best = best_instructions();
  for (ElementType type : troika::testing::kAllTypes) {
    for (int ranks : {2, 3, 4, 5, 9}) {
      std::vector<Buffer> sources = sources_of(type, ranks, 1543);
      const std::vector<const void*> from = addresses(sources);
      const std::vector<double> weights = {0.3, 0, 7, 1e-3, 2, 1, 1, 1, 5};
      std::vector<std::byte> first;
      for (Instructions each : {Instructions::baseline, Instructions::avx2, Instructions::avx512}) {
        if (each > best) continue;
        Buffer total(type, 1543), mean(type, 1543);
        void* const to_total[] = {total.elements().data};
        void* const to_mean[] = {mean.elements().data};
        sum(type, from, to_total, 1543, each);
        if (type != ElementType::int64) {
          weighted_mean(type, from, std::span(weights).first(static_cast<size_t>(ranks)), to_mean, 1543,
                        each);
        }
        std::vector<std::byte> bytes = total.bytes();
        bytes.insert(bytes.end(), mean.bytes().begin(), mean.bytes().end());
        if (first.empty()) first = bytes;
        EXPECT_TRUE(bytes == first) << name_of(type) << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(Kernels, NegativeZeroAndInfinityStay) {
  for (int ranks : {2, 3, 5}) {
    Buffer value(ElementType::float32, 2);
    value.set(0, -0.0);
    value.set(1, -std::numeric_limits<double>::infinity());
    std::vector<Buffer> sources(static_cast<size_t>(ranks), value);
    Buffer result(ElementType::float32, 2);
    void* const to[] = {result.elements().data};
    sum(ElementType::float32, addresses(sources), to, 2);
    EXPECT_EQ(result.bytes(), value.bytes());
  }
}

TEST(Kernels, IntegersWrap) {
  Buffer most(ElementType::int64, 1);
  const int64_t limit = std::numeric_limits<int64_t>::max();
  std::memcpy(most.elements().data, &limit, sizeof limit);
  std::vector<Buffer> sources(2, most);
  int64_t result = 0;
  void* const to[] = {&result};
  sum(ElementType::int64, addresses(sources), to, 1);
  EXPECT_EQ(result, -2);
}

TEST(Kernels, TheMeanOfOneIsThatOne) {
  std::vector<Buffer> sources = sources_of(ElementType::float64, 3, 100);
  Buffer result(ElementType::float64, 100);
  void* const to[] = {result.elements().data};
  weighted_mean(ElementType::float64, addresses(sources), std::vector<double>{0, 0.1, 0}, to, 100);
  EXPECT_EQ(result.bytes(), sources[1].bytes());
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(1.0f + 0x1p-8f), 0x3f80);             // a tie, to even: down
  EXPECT_EQ(float_to_bfloat16(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);   // a tie, to even: up
  EXPECT_EQ(float_to_bfloat16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);  // just above a tie
  EXPECT_EQ(float_to_bfloat16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);  // rounds to infinity
  const auto nan_with_low_payload = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(nan_with_low_payload))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bfloat16_to_float(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(float_to_bfloat16(value), bits);
    }
  }
}

}  // namespace
}  // namespace troika::inproc

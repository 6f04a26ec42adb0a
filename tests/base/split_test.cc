#include "troika/base/split.h"

#include <gtest/gtest.h>

namespace troika {
namespace {

TEST(Share, PartsAreConsecutiveAndTheFirstOnesAreLonger) {
  for (int64_t size = 0; size <= 20; ++size) {
    for (int64_t parts = 1; parts <= 7; ++parts) {
      int64_t next = 100;
      for (int64_t i = 0; i < parts; ++i) {
        const Range part = share({100, 100 + size}, parts, i);
        EXPECT_EQ(part.begin, next);
        EXPECT_EQ(part.size(), size / parts + (i < size % parts ? 1 : 0));
        next = part.end;
      }
      EXPECT_EQ(next, 100 + size);
    }
  }
}

}  // namespace
}  // namespace troika

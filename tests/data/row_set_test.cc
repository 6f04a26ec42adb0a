#include <gtest/gtest.h>

#include "troika/base/random.h"
#include "troika/data/source.h"

namespace troika {
namespace {

TEST(RowSet, CountsEveryRangeAsOneByOne) {
  for (const int64_t rows : {0, 1, 63, 64, 65, 130, 200}) {
    RowSet set(rows);
    for (int64_t row = 0; row < rows; ++row) {
      if (uniform(7, static_cast<uint64_t>(row)) < 0.5) set.set(row, true);
    }
    for (int64_t begin = 0; begin <= rows; ++begin) {
      int64_t expected = 0;
      for (int64_t end = begin; end <= rows; ++end) {
        ASSERT_EQ(set.count({begin, end}), expected) << "[" << begin << ", " << end << ") of " << rows;
        if (end < rows) expected += set.contains(end) ? 1 : 0;
      }
    }
  }
}

TEST(RowSet, HoldsAllRowsOrNone) {
  for (const int64_t rows : {0, 1, 64, 65, 1000}) {
    EXPECT_EQ(RowSet(rows, true).count(), rows);
    EXPECT_EQ(RowSet(rows).count(), 0);
    EXPECT_EQ(RowSet(rows).universe(), rows);
  }
}

TEST(RowSet, TakesRowsOutAgain) {
  RowSet set(100, true);
  set.set(64, false);
  EXPECT_FALSE(set.contains(64));
  EXPECT_TRUE(set.contains(63));
  EXPECT_EQ(set.count(), 99);
}

TEST(RowSetDeathTest, RefusesRowsOutside) { EXPECT_DEATH(RowSet(10).set(10, true), "row 10 of 10"); }

}  // namespace
}  // namespace troika

#include "troika/parallel/flat_layout.h"

#include <gtest/gtest.h>

namespace troika {
namespace {

FlatLayout three() { return make_flat_layout({{"a", {3, 5}, 0, 0}, {"b", {}, 0, 0}, {"c", {40}, 0, 0}}, 4); }

TEST(FlatLayout, EveryParameterStartsOn64Bytes) {
  const FlatLayout layout = three();
  ASSERT_EQ(layout.entries.size(), 3u);
  EXPECT_EQ(layout.line, 16);
  EXPECT_EQ(layout.entries[0].size, 15);
  EXPECT_EQ(layout.entries[1].offset, 16);
  EXPECT_EQ(layout.entries[1].size, 1);
  EXPECT_EQ(layout.entries[2].offset, 32);
  EXPECT_EQ(layout.total, 80);
  EXPECT_EQ(layout.padded(1), (Range{16, 32}));
  EXPECT_EQ(layout.padded(2), (Range{32, 80}));
  EXPECT_EQ(make_flat_layout({{"a", {3, 5}, 0, 0}}, 8).total, 16);
}

TEST(FlatLayout, SlicesCoverEverythingOnceAndAreCutOn64Bytes) {
  const FlatLayout layout = three();
  for (const int ranks : {1, 2, 3, 7}) {
    int64_t at = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Range slice = slice_of_rank(layout, ranks, rank);
      EXPECT_EQ(slice.begin, at);
      EXPECT_EQ(slice.begin % layout.line, 0);
      at = slice.end;
    }
    EXPECT_EQ(at, layout.total);
  }
}

}  // namespace
}  // namespace troika

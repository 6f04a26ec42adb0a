#include "troika/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "troika/base/random.h"

namespace troika {
namespace {

// A dataset that is only looked at, never read.
Dataset shards_of(std::vector<int64_t> rows, int float_columns, int int_columns = 0) {
  Dataset dataset;
  dataset.float_columns = float_columns;
  dataset.int_columns = int_columns;
  for (const int64_t count : rows) {
    Shard shard;
    shard.rows = count;
    dataset.shards.push_back(shard);
    dataset.rows += count;
  }
  return dataset;
}

RowSet some_rows(int64_t rows, double share, uint64_t key = 5) {
  RowSet set(rows);
  for (int64_t row = 0; row < rows; ++row) set.set(row, uniform(key, static_cast<uint64_t>(row)) < share);
  return set;
}

std::vector<int64_t> rows_of_epoch(const SampleOrder& order, int64_t epoch) {
  const EpochOrder of_epoch = order.epoch(epoch);
  std::vector<int64_t> rows;
  std::vector<Slot> items;
  for (int64_t group = 0; group < of_epoch.groups(); ++group) {
    const std::vector<Block> blocks = order.group_blocks(of_epoch, group);
    order.group_items(of_epoch, epoch, group, items);
    EXPECT_EQ(static_cast<int64_t>(rows.size()), of_epoch.group_begin[static_cast<size_t>(group)]);
    for (const Slot slot : items)
      rows.push_back(blocks[static_cast<size_t>(slot.block())].first_row + slot.row());
  }
  EXPECT_EQ(static_cast<int64_t>(rows.size()), order.size());
  return rows;
}

std::vector<int64_t> members(const RowSet& set) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < set.universe(); ++row) {
    if (set.contains(row)) rows.push_back(row);
  }
  return rows;
}

TEST(Order, BlocksKeepToTheirLimitsAndNeverCrossShards) {
  for (const int columns : {1, 40, 1000, 300'000}) {
    const Dataset dataset = shards_of({1000, 1, 513, 512, 7}, columns);
    const BlockLayout layout(dataset);
    EXPECT_LE(layout.block_rows, kMaxBlockRows);
    EXPECT_TRUE(layout.block_rows == 1 || layout.block_rows * dataset.row_bytes() <= kMaxBlockBytes);
    const int64_t group_rows = layout.block_rows * layout.blocks_per_group;
    EXPECT_LE(group_rows, kMaxGroupRows);
    EXPECT_TRUE(layout.blocks_per_group == 1 || group_rows * dataset.row_bytes() <= kMaxGroupBytes);
    int64_t next = 0;
    for (int64_t index = 0; index < layout.blocks(); ++index) {
      const Block block = layout.block(index);
      ASSERT_EQ(block.first_row, next);
      ASSERT_GT(block.rows, 0);
      ASSERT_LE(block.row_in_shard + block.rows, dataset.shards[static_cast<size_t>(block.shard)].rows);
      next += block.rows;
    }
    EXPECT_EQ(next, dataset.rows);
  }
}

TEST(Order, IsAPermutationForAnySizeSeedAndEpoch) {
  for (const int64_t rows : {0, 1, 2, 3, 511, 513, 1025, 300'001}) {
    const Dataset dataset = shards_of({rows / 3, rows - rows / 3}, 1, 1);
    for (const double share : {1.0, 0.3, 0.002}) {
      const RowSet selected = some_rows(rows, share);
      const std::vector<int64_t> expected = members(selected);
      for (const uint64_t seed : {0ull, 1ull, 0xFFFFFFFFFFFFFFFFull}) {
        const SampleOrder order(dataset, selected, seed, true);
        for (const int64_t epoch : {0, 1, 1000}) {
          std::vector<int64_t> got = rows_of_epoch(order, epoch);
          std::sort(got.begin(), got.end());
          ASSERT_EQ(got, expected) << rows << " rows, share " << share << ", seed " << seed << ", epoch "
                                   << epoch;
        }
      }
    }
  }
}

TEST(Order, WithoutShufflingIsTheDatasets) {
  const RowSet selected = some_rows(300'001, 0.4);
  const SampleOrder order(shards_of({100'000, 200'001}, 1), selected, 3, false);
  EXPECT_EQ(rows_of_epoch(order, 0), members(selected));
  EXPECT_EQ(rows_of_epoch(order, 5), members(selected));
}

TEST(Order, FindsTheGroupOfEveryPosition) {
  const SampleOrder order(shards_of({400'000}, 1), some_rows(400'000, 0.01), 3, true);
  const EpochOrder epoch = order.epoch(2);
  ASSERT_GT(epoch.groups(), 2);
  EXPECT_EQ(epoch.groups(), order.groups());
  for (int64_t position = 0; position < order.size(); ++position) {
    const auto group = static_cast<size_t>(epoch.group_of(position));
    ASSERT_LE(epoch.group_begin[group], position);
    ASSERT_LT(position, epoch.group_begin[group + 1]);
  }
}

TEST(Order, DependsOnSeedAndEpochOnly) {
  const Dataset dataset = shards_of({5000}, 4);
  const RowSet all(5000, true);
  const auto rows = [&](uint64_t seed, int64_t epoch) {
    return rows_of_epoch(SampleOrder(dataset, all, seed, true), epoch);
  };
  EXPECT_EQ(rows(1, 2), rows(1, 2));
  EXPECT_NE(rows(1, 2), rows(1, 3));
  EXPECT_NE(rows(1, 2), rows(2, 2));
  EXPECT_NE(rows(1, 2), rows(2, 1));
}

// Runs resume by this order, and results are compared with older ones: it may only change with the format.
TEST(Order, StaysWhatItIs) {
  const SampleOrder order(shards_of({10}, 1), RowSet(10, true), 42, true);
  const std::vector<int64_t> first = rows_of_epoch(order, 0);
  EXPECT_EQ(first, (std::vector<int64_t>{1, 3, 8, 6, 9, 7, 0, 5, 2, 4}));
}

TEST(Order, StaysWhatItIsOverManyGroups) {
  const Dataset dataset = shards_of({100'000, 1, 513, 512, 70'007, 130'000}, 3, 2);
  const SampleOrder order(dataset, some_rows(dataset.rows, 0.7), 99, true);
  ASSERT_EQ(order.groups(), 3);
  uint64_t hash = 0;
  for (const int64_t epoch : {0, 3}) {
    for (const int64_t row : rows_of_epoch(order, epoch)) hash = mix_keys(hash, static_cast<uint64_t>(row));
  }
  EXPECT_EQ(hash, 0xaeac767cf14f687d);
}

// Items of several rows: runs resume by this order, too.
TEST(Order, OfWindowsStaysWhatItIs) {
  RowSet starts(20);
  for (int64_t row = 0; row <= 20 - 4; ++row) starts.set(row, true);
  const std::vector<int64_t> first =
      rows_of_epoch(SampleOrder(shards_of({10, 10}, 1), starts, 42, true, 4), 0);
  EXPECT_EQ(first, (std::vector<int64_t>{3, 4, 15, 10, 7, 14, 9, 0, 16, 13, 8, 2, 1, 5, 6, 12, 11}));
}

TEST(Order, OfWindowsIsAPermutationForAnySpan) {
  for (const std::vector<int64_t>& shards : std::vector<std::vector<int64_t>>{
           {7}, {60'001}, {1, 0, 2, 1, 600, 3}, {5'000, 20, 30'000}, {200, 200, 200}}) {
    const Dataset dataset = shards_of(shards, 3, 1);
    for (const int64_t span : {2, 3, 64, 300, 5'000, 30'000}) {
      for (const double share : {1.0, 0.1}) {
        RowSet starts = some_rows(dataset.rows, share);
        for (int64_t row = std::max<int64_t>(0, dataset.rows - span + 1); row < dataset.rows; ++row)
          starts.set(row, false);
        const SampleOrder order(dataset, starts, 8, true, span);
        for (const int64_t epoch : {0, 1}) {
          std::vector<int64_t> got = rows_of_epoch(order, epoch);
          std::sort(got.begin(), got.end());
          ASSERT_EQ(got, members(starts)) << dataset.rows << " rows, span " << span;
        }
        const SampleOrder in_order(dataset, starts, 8, false, span);
        ASSERT_EQ(rows_of_epoch(in_order, 3), members(starts));
      }
    }
  }
}

// What a group states is what its blocks take, and a block is read for more than the rows after it.
TEST(Order, StatesWhatGroupsOfWindowsTake) {
  for (const int columns : {1, 40, 1'000}) {
    const Dataset dataset = shards_of({50'000, 300, 3, 0, 120'000}, columns, 1);
    for (const int64_t span : {1, 2, 64, 500, 3'000}) {
      RowSet starts = some_rows(dataset.rows, 0.5);
      for (int64_t row = dataset.rows - span + 1; row < dataset.rows; ++row) starts.set(row, false);
      const SampleOrder order(dataset, starts, 8, true, span);
      const BlockLayout& layout = order.layout();
      EXPECT_LE(layout.block_rows, span == 1 ? kMaxBlockRows : kMaxWindowBlockRows);
      if (span > 1) {
        const int64_t bytes = (layout.block_rows + span - 1) * dataset.row_bytes();
        EXPECT_TRUE(layout.block_rows >= 4 * span || bytes > kMaxWindowBlockBytes / 2) << span;
        EXPECT_TRUE(bytes <= kMaxWindowBlockBytes || layout.block_rows == span) << span;
        EXPECT_TRUE(bytes * layout.blocks_per_group <= kMaxGroupBytes || layout.blocks_per_group == 1);
      }
      std::vector<Slot> items;
      for (const int64_t epoch : {0, 1}) {
        const EpochOrder of_epoch = order.epoch(epoch);
        for (int64_t group = 0; group < of_epoch.groups(); ++group) {
          order.group_items(of_epoch, epoch, group, items);
          int64_t rows = 0, crossing = 0;
          for (const Block& block : order.group_blocks(of_epoch, group)) {
            rows += block.rows + span - 1;
            const bool crosses = block.row_in_shard + block.rows + span - 1 > layout.shard_rows(block.shard);
            crossing += crosses ? block.rows + span - 1 : 0;
          }
          ASSERT_LE(static_cast<int64_t>(items.size()), order.group_items());
          ASSERT_LE(rows, order.group_rows());
          ASSERT_LE(crossing, order.group_crossing_rows());
        }
      }
    }
  }
}

TEST(OrderDeathTest, RefusesAnItemThatReachesBeyondTheRows) {
  RowSet starts(10);
  starts.set(7, true);
  EXPECT_EQ(SampleOrder(shards_of({4, 6}, 1), starts, 0, true, 3).size(), 1);
  EXPECT_DEATH(SampleOrder(shards_of({4, 6}, 1), starts, 0, true, 4),
               "an item of 4 rows begins within the last 3");
  EXPECT_DEATH(SampleOrder(shards_of({4, 6}, 1), starts, 0, true, 1'000), "an item of 1000 rows");
}

TEST(Order, AllOrdersOfFourRowsAreAsLikely) {
  const SampleOrder order(shards_of({4}, 1), RowSet(4, true), 9, true);
  constexpr int kEpochs = 4800;
  std::map<std::vector<int64_t>, int> seen;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) ++seen[rows_of_epoch(order, epoch)];
  ASSERT_EQ(seen.size(), 24u);
  double chi_square = 0;
  for (const auto& [rows, count] : seen) chi_square += std::pow(count - kEpochs / 24.0, 2) / (kEpochs / 24.0);
  EXPECT_LT(chi_square, 60);  // 23 degrees of freedom: passed by chance once in 30,000
}

// Labels sorted in the file must be spread over the epoch. Cells: tenth of the labels x tenth of the
// positions.
TEST(Order, MixesSortedLabelsWithinAGroup) {
  constexpr int64_t kRows = 100'000;
  const SampleOrder order(shards_of({kRows}, 1), RowSet(kRows, true), 1, true);
  ASSERT_EQ(order.groups(), 1);
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const std::vector<int64_t> rows = rows_of_epoch(order, epoch);
    double cells[10][10] = {};
    double neighbours = 0;
    for (size_t p = 0; p < rows.size(); ++p) {
      cells[rows[p] * 10 / kRows][p * 10 / rows.size()] += 1;
      if (p > 0) neighbours += std::abs(static_cast<double>(rows[p] - rows[p - 1]));
    }
    double chi_square = 0;
    for (const auto& row : cells) {
      for (const double count : row) chi_square += std::pow(count - kRows / 100.0, 2) / (kRows / 100.0);
    }
    EXPECT_GT(chi_square, 35) << "too even to be random";
    EXPECT_LT(chi_square, 145) << "81 degrees of freedom";
    EXPECT_NEAR(neighbours / kRows / kRows, 1.0 / 3, 0.005);
  }
}

TEST(Order, MixesSortedLabelsOverGroups) {
  constexpr int64_t kRows = 2'000'000;
  const SampleOrder order(shards_of({kRows}, 1), RowSet(kRows, true), 1, true);
  ASSERT_GT(order.groups(), 10);
  const std::vector<int64_t> rows = rows_of_epoch(order, 0);
  double sums[10] = {};
  for (size_t p = 0; p < rows.size(); ++p) sums[p * 10 / rows.size()] += static_cast<double>(rows[p]) / kRows;
  // A tenth holds about 391 of 3,907 blocks: its mean label has a standard error of 0.29 / sqrt(391) = 0.015.
  for (const double sum : sums) EXPECT_NEAR(sum / (kRows / 10.0), 0.5, 0.06);
}

TEST(EpochOrders, KeepsFewAndAnswersTheSame) {
  const SampleOrder order(shards_of({5000}, 4), RowSet(5000, true), 1, true);
  EpochOrders orders(order);
  const auto kept = orders.get(0);
  EXPECT_EQ(orders.get(0), kept);
  for (int64_t epoch = 1; epoch < 10; ++epoch)
    EXPECT_EQ(orders.get(epoch)->blocks, order.epoch(epoch).blocks);
  EXPECT_NE(orders.get(0), kept);
  EXPECT_EQ(orders.get(0)->blocks, kept->blocks);
}

}  // namespace
}  // namespace troika

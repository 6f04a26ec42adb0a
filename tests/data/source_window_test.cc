#include "troika/data/source_window.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/make_dataset.h"
#include "support/temporary_folder.h"

namespace troika {
namespace {

// The numbers of the rows of a group in memory, from int column 0.
std::vector<int64_t> rows_of(const LoadedGroup& group) {
  std::vector<int64_t> rows;
  for (const Slot slot : group.items) {
    int64_t row;
    std::memcpy(&row, group.blocks[static_cast<size_t>(slot.block())].ints + slot.row() * 8, sizeof row);
    rows.push_back(row);
  }
  return rows;
}

TEST(GroupWindow, KeepsAHeldGroupWhateverOthersAskFor) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 600'000});
  const RowSet all(dataset.rows, true);
  const SampleOrder order(dataset, all, 1, true);
  ASSERT_GE(order.groups(), 5);
  EpochOrders orders(order);
  constexpr auto kHow = ShardReader::How::random_reads;
  GroupWindow window(order, orders, ShardReader(dataset, kHow), {.how = kHow, .slots = 2}, 2);

  // The one furthest ahead would be given up first.
  window.move_to(0, 2, 0);
  const LoadedGroup& held = window.acquire(0, {2, 0});
  const std::vector<int64_t> before = rows_of(held);
  EXPECT_EQ(static_cast<int64_t>(before.size()), orders.get(2)->group_begin[1]);
  for (const int64_t epoch : {0, 1}) {
    for (int64_t group = 0; group < order.groups(); ++group) {
      window.move_to(1, epoch, orders.get(epoch)->group_begin[static_cast<size_t>(group)]);
      const LoadedGroup& other = window.acquire(1, {epoch, group});
      ASSERT_NE(&other, &held);
      ASSERT_NE(rows_of(other), before);
      window.release(1);
    }
  }
  EXPECT_EQ(rows_of(held), before);
  window.release(0);
}

}  // namespace
}  // namespace troika

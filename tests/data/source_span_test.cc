// Items of several rows: each once an epoch, as they lie in the dataset, however its shards cut it and
// however it is read.
#include <gtest/gtest.h>

#include <algorithm>

#include "data/series_table.h"
#include "data/source_reading.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"

namespace troika {
namespace {

// First rows of items of `span` rows within `rows`; about `share` of all that fit.
RowSet some_starts(int64_t rows, int64_t span, double share) {
  RowSet starts(rows);
  for (int64_t row = 0; row + span <= rows; ++row)
    starts.set(row, uniform(11, static_cast<uint64_t>(row)) < share);
  return starts;
}

// The epoch's items are those that begin at `starts`, whole and with the right values.
void expect_items(const Dataset& dataset, const Reading& reading, const std::vector<int64_t>& starts,
                  int64_t span) {
  ASSERT_EQ(reading.rows.size(), starts.size() * static_cast<size_t>(span));
  for (size_t i = 0; i < reading.rows.size(); ++i) {
    const int64_t row = starts[i / static_cast<size_t>(span)] + static_cast<int64_t>(i) % span;
    ASSERT_EQ(reading.rows[i], row);
    for (int c = 0; c < dataset.float_columns; ++c) {
      ASSERT_EQ(reading.floats[i * static_cast<size_t>(dataset.float_columns) + static_cast<size_t>(c)],
                test_float(row, c));
    }
  }
}

class SourceSpan : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<BatchSource> open(const Dataset& dataset, const RowSet& starts, SourceOptions options) {
    options.memory_budget_bytes = kAmple;
    auto source = GetParam() ? open_pooled(dataset, starts, 3, options)
                             : BatchSource::open(dataset, starts, 3, options);
    EXPECT_EQ(source->memory_plan().find("mapped") == std::string::npos, GetParam()) << source->memory_plan();
    return source;
  }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, SourceSpan, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Pooled" : "Mapped"; });

TEST_P(SourceSpan, GivesEachItemOnceHoweverShardsCutIt) {
  for (const int64_t rows_per_shard : {1, 3, 10, 64, 1'000}) {
    const Dataset dataset = make_dataset(folder_.path(), {.rows = 300,
                                                          .float_columns = 2,
                                                          .int_columns = 2,
                                                          .rows_per_shard = rows_per_shard,
                                                          .checksum_block_bytes = 256});
    for (const int64_t span : {2, 3, 11, 64, 300}) {
      const RowSet starts = some_starts(300, span, span == 300 ? 1 : 0.7);
      const std::vector<int64_t> expected = members_of(starts);
      const auto source = open(dataset, starts, {.readers = 2, .span = span});
      ASSERT_EQ(source->size(), static_cast<int64_t>(expected.size()));
      for (const int64_t epoch : {0, 1}) {
        std::vector<int64_t> order = source->row_numbers(epoch, {0, source->size()});
        expect_items(dataset, read_epoch(*source, dataset, 2, epoch, 7, 0, span), order, span);
        std::sort(order.begin(), order.end());
        ASSERT_EQ(order, expected) << rows_per_shard << " rows a shard, span " << span;
      }
    }
  }
}

// Several groups, and windows in all of them that cross shards.
TEST_P(SourceSpan, HasTheSameOrderForAnyReadersFromAnyPosition) {
  constexpr int64_t kSpan = 24;
  const Dataset dataset = make_dataset(
      folder_.path(), {.rows = 400'000, .rows_per_shard = 30'011, .checksum_block_bytes = 1 << 16});
  const RowSet starts = some_starts(dataset.rows, kSpan, 0.02);
  std::vector<int64_t> order;
  for (const int readers : {1, 2, 3}) {
    const auto source = open(dataset, starts, {.readers = readers, .span = kSpan});
    const std::vector<int64_t> of_source = source->row_numbers(2, {0, source->size()});
    if (order.empty()) order = of_source;
    ASSERT_EQ(of_source, order);
    for (const int64_t from : {int64_t{0}, int64_t{3'333}, source->size() - 1}) {
      const std::vector<int64_t> rest(order.begin() + from, order.end());
      const auto again = open(dataset, starts, {.readers = readers, .span = kSpan});
      expect_items(dataset, read_epoch(*again, dataset, readers, 2, 500, from, kSpan), rest, kSpan);
    }
  }
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, members_of(starts));
  EXPECT_NE(sorted, order);
}

TEST_P(SourceSpan, KeepsTheDatasetsOrderWithoutShuffling) {
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 5'000, .rows_per_shard = 1'234});
  const RowSet starts = some_starts(5'000, 30, 0.3);
  const auto source = open(dataset, starts, {.shuffle = false, .span = 30});
  expect_items(dataset, read_epoch(*source, dataset, 1, 0, 64, 0, 30), members_of(starts), 30);
}

TEST_P(SourceSpan, TakesItemsLargerThanABlock) {
  // 4 MB an item, 1 KB a row.
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 10'000,
                                                        .float_columns = 254,
                                                        .int_columns = 1,
                                                        .rows_per_shard = 3'000,
                                                        .checksum_block_bytes = 1 << 22});
  RowSet starts(10'000);
  for (const int64_t row : {0, 1, 2'999, 3'000, 6'000}) starts.set(row, true);
  const auto source = open(dataset, starts, {.span = 4'000});
  std::vector<int64_t> order = source->row_numbers(0, {0, 5});
  expect_items(dataset, read_epoch(*source, dataset, 1, 0, 2, 0, 4'000), order, 4'000);
}

TEST(SourceSpanAlone, MayHaveNoItemAtAll) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 50});
  const auto source =
      BatchSource::open(dataset, RowSet(50), 1, {.memory_budget_bytes = kAmple, .span = 1'000'000});
  EXPECT_EQ(source->size(), 0);
  RowBuffer buffer;
  source->gather(0, 0, {0, 0}, buffer);
  EXPECT_EQ(buffer.rows, 0);
}

TEST(SourceSpanAlone, IsBitEqualMappedInTwoGroupsAndInOne) {
  const TemporaryFolder folder;
  const Dataset dataset =
      make_dataset(folder.path(), {.rows = 300'000, .float_columns = 2, .rows_per_shard = 20'011});
  const RowSet starts = some_starts(dataset.rows, 48, 0.02);
  const SourceOptions ample{.memory_budget_bytes = kAmple, .span = 48};
  const auto mapped = BatchSource::open(dataset, starts, 3, ample);
  const auto two = open_pooled(dataset, starts, 3, ample);
  const auto one =
      BatchSource::open(dataset, starts, 3, {.memory_budget_bytes = two->planned_bytes() - 1, .span = 48});
  EXPECT_NE(two->memory_plan().find("2 groups"), std::string::npos) << two->memory_plan();
  EXPECT_NE(one->memory_plan().find("1 group"), std::string::npos) << one->memory_plan();
  for (const int64_t epoch : {0, 1}) {
    const Reading expected = read_epoch(*mapped, dataset, 1, epoch, 900, 0, 48);
    for (BatchSource* const other : {two.get(), one.get()}) {
      const Reading got = read_epoch(*other, dataset, 1, epoch, 900, 0, 48);
      ASSERT_EQ(got.rows, expected.rows);
      ASSERT_EQ(got.floats, expected.floats);
    }
  }
}

// From rows of a table to windows as a trainer gets them.
TEST(SourceSpanAlone, ReadsTheWindowsOfASplit) {
  const TemporaryFolder folder;
  std::vector<SeriesRow> rows;
  for (int series = 0; series < 9; ++series) add_series(rows, series, 30 + 7 * series);
  const Dataset dataset = make_series(folder.path(), rows, true, 50);
  SplitOptions options;
  options.by = SplitOptions::By::series;
  const WindowOptions windows = windows_of(6, 2, 3);
  const Split split = split_windows(dataset, {"y"}, options, windows);
  EXPECT_EQ(split.items(), static_cast<int64_t>(naive_windows(rows, 6, 2, 3, 1.5).size()));
  const auto source =
      BatchSource::open(dataset, split.train, 1, {.memory_budget_bytes = kAmple, .span = windows.span()});
  RowBuffer buffer;
  source->gather(0, 0, {0, source->size()}, buffer);
  ASSERT_EQ(buffer.rows, source->size() * 8);
  for (int64_t row = 0; row < buffer.rows; ++row) {
    const auto at = static_cast<size_t>(row);
    if (row % 8 == 0) continue;
    ASSERT_EQ(buffer.floats[2 * at], buffer.floats[2 * at - 2] + 1);
    ASSERT_EQ(buffer.floats[2 * at + 1], buffer.floats[2 * at - 1]) << "another series";
  }
}

}  // namespace
}  // namespace troika

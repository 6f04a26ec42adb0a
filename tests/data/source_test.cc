#include "troika/data/source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "data/source_reading.h"
#include "support/make_dataset.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"
#include "troika/base/random.h"

namespace troika {
namespace {

RowSet some_rows(int64_t rows, double share) {
  RowSet set(rows);
  for (int64_t row = 0; row < rows; ++row) set.set(row, uniform(5, static_cast<uint64_t>(row)) < share);
  return set;
}

std::vector<int64_t> members(const RowSet& set) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < set.universe(); ++row) {
    if (set.contains(row)) rows.push_back(row);
  }
  return rows;
}

bool is_pooled(const BatchSource& source) { return source.memory_plan().find("group") != std::string::npos; }

std::unique_ptr<BatchSource> open_source(bool pooled, const Dataset& dataset, const RowSet& rows,
                                         uint64_t seed, SourceOptions options) {
  if (pooled) return open_pooled(dataset, rows, seed, options);
  options.memory_budget_bytes = kAmple;
  return BatchSource::open(dataset, rows, seed, options);
}

// Both ways to read.
class Source : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<BatchSource> open(const Dataset& dataset, const RowSet& rows, uint64_t seed,
                                    SourceOptions options) {
    auto source = open_source(GetParam(), dataset, rows, seed, options);
    EXPECT_EQ(is_pooled(*source), GetParam()) << source->memory_plan();
    return source;
  }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, Source, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Pooled" : "Mapped"; });

void expect_values(const Dataset& dataset, const Reading& reading) {
  for (size_t i = 0; i < reading.rows.size(); ++i) {
    for (int c = 0; c < dataset.float_columns; ++c) {
      ASSERT_EQ(reading.floats[i * static_cast<size_t>(dataset.float_columns) + static_cast<size_t>(c)],
                test_float(reading.rows[i], c))
          << "item " << i << " is row " << reading.rows[i];
    }
  }
}

TEST_P(Source, GivesEachRowOnceInTheGlobalOrderToAnyNumberOfReaders) {
  // The last one spans several groups, whose borders lie inside batches.
  for (const int64_t rows : {1, 2, 37, 1025, 320'003}) {
    const Dataset dataset = make_dataset(
        folder_.path(),
        {.rows = rows, .float_columns = 2, .rows_per_shard = rows / 3 + 1, .checksum_block_bytes = 65'536});
    const RowSet selected = rows == 1 ? RowSet(1, true) : some_rows(rows, 0.8);
    const int64_t batch = rows > 10'000 ? 4'999 : 7;
    for (const int readers : {1, 2, 3, 4}) {
      for (const uint64_t seed : {0ull, 17ull}) {
        const auto source = open(dataset, selected, seed, {.readers = readers});
        ASSERT_EQ(source->size(), selected.count());
        for (const int64_t epoch : {0, 1, 2}) {
          const Reading reading = read_epoch(*source, dataset, readers, epoch, batch);
          ASSERT_EQ(reading.rows, source->row_numbers(epoch, {0, source->size()}))
              << rows << " rows, " << readers << " readers, seed " << seed << ", epoch " << epoch;
          expect_values(dataset, reading);
          std::vector<int64_t> sorted = reading.rows;
          std::sort(sorted.begin(), sorted.end());
          ASSERT_EQ(sorted, members(selected));
        }
      }
    }
  }
}

TEST_P(Source, ResumesFromEveryPosition) {
  const Dataset dataset =
      make_dataset(folder_.path(), {.rows = 61, .float_columns = 3, .rows_per_shard = 20});
  const RowSet all(61, true);
  const auto unbroken = open(dataset, all, 4, {.readers = 2});
  read_epoch(*unbroken, dataset, 2, 0, 8);
  const Reading whole = read_epoch(*unbroken, dataset, 2, 1, 8);
  for (int64_t from = 0; from <= 61; ++from) {
    const auto resumed = open(dataset, all, 4, {.readers = 3});
    const Reading rest = read_epoch(*resumed, dataset, 3, 1, 8, from);
    ASSERT_EQ(rest.rows, std::vector<int64_t>(whole.rows.begin() + from, whole.rows.end()))
        << "from " << from;
    ASSERT_EQ(rest.floats, std::vector<float>(whole.floats.begin() + 3 * from, whole.floats.end()));
  }
}

TEST_P(Source, ResumesInTheLastGroupOfALaterEpoch) {
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 300'000});
  const RowSet all(300'000, true);
  const auto source = open(dataset, all, 4, {.readers = 2});
  const Reading rest = read_epoch(*source, dataset, 2, 3, 1000, 299'100);
  EXPECT_EQ(rest.rows, source->row_numbers(3, {299'100, 300'000}));
  EXPECT_EQ(read_epoch(*source, dataset, 2, 4, 1000).rows, source->row_numbers(4, {0, 300'000}));
}

TEST_P(Source, KeepsTheDatasetsOrderWithoutShuffling) {
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 200'000, .rows_per_shard = 70'001});
  const RowSet selected = some_rows(200'000, 0.1);
  const auto source = open(dataset, selected, 4, {.readers = 2, .shuffle = false});
  EXPECT_EQ(read_epoch(*source, dataset, 2, 0, 5'000).rows, members(selected));
  EXPECT_EQ(read_epoch(*source, dataset, 2, 1, 5'000).rows, members(selected));
}

TEST_P(Source, ShufflesEveryEpochAnew) {
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 1'000});
  const auto source = open(dataset, RowSet(1'000, true), 4, {});
  EXPECT_NE(read_epoch(*source, dataset, 1, 0, 100).rows, read_epoch(*source, dataset, 1, 1, 100).rows);
}

TEST_P(Source, ReadersWithoutSamplesOnlyMoveOn) {
  // Batches of 1 for three readers: two of them have none in every batch.
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 50});
  const auto source = open(dataset, RowSet(50, true), 4, {.readers = 3});
  for (const int64_t epoch : {0, 1}) {
    EXPECT_EQ(read_epoch(*source, dataset, 3, epoch, 1).rows, source->row_numbers(epoch, {0, 50}));
  }
}

TEST_P(Source, AReaderThatNeverComesHoldsNobodyUp) {
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 400'000});
  const auto source = open(dataset, RowSet(400'000, true), 4, {.readers = 3});
  RowBuffer buffer;
  source->gather(1, 0, {0, 10}, buffer);  // comes once, then is gone
  for (const int64_t epoch : {0, 1}) {
    EXPECT_EQ(read_epoch(*source, dataset, 1, epoch, 50'000).rows, source->row_numbers(epoch, {0, 400'000}));
  }
}

TEST_P(Source, ReadersFarApartStillGetTheirRows) {
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 600'000});
  const auto source = open(dataset, RowSet(600'000, true), 4, {.readers = 4});
  const std::vector<int64_t> expected = source->row_numbers(0, {0, 600'000});
  // A batch of everything: each reader's share is more than a group, and all four groups are wanted at once.
  EXPECT_EQ(read_epoch(*source, dataset, 4, 0, 600'000).rows, expected);
  EXPECT_EQ(read_epoch(*source, dataset, 4, 1, 600'000).rows, source->row_numbers(1, {0, 600'000}));
}

TEST_P(Source, ServesAnEmptySetOfRows) {
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 50});
  SourceOptions options{.memory_budget_bytes = kAmple};
  const auto source = BatchSource::open(dataset, RowSet(50), 4, options);
  EXPECT_EQ(source->size(), 0);
  RowBuffer buffer;
  source->gather(0, 0, {0, 0}, buffer);
  source->gather(0, 1, {0, 0}, buffer);
  EXPECT_EQ(buffer.rows, 0);
  EXPECT_TRUE(buffer.floats.empty());
}

TEST_P(Source, ReadsOneKindOfColumnAlone) {
  const Dataset floats = make_dataset(folder_.path(), {.rows = 500, .float_columns = 2, .int_columns = 0});
  RowBuffer buffer;
  open(floats, RowSet(500, true), 1, {.shuffle = false})->gather(0, 0, {100, 102}, buffer);
  EXPECT_EQ(buffer.floats, (std::vector<float>{test_float(100, 0), test_float(100, 1), test_float(101, 0),
                                               test_float(101, 1)}));
  EXPECT_TRUE(buffer.ints.empty());
  const Dataset ints = make_dataset(folder_.path(), {.rows = 500, .float_columns = 0, .int_columns = 1});
  open(ints, RowSet(500, true), 1, {.shuffle = false})->gather(0, 0, {100, 102}, buffer);
  EXPECT_EQ(buffer.ints, (std::vector<int64_t>{100, 101}));
  EXPECT_TRUE(buffer.floats.empty());
}

TEST_P(Source, EndsInAnyState) {
  const Dataset dataset = make_dataset(folder_.path(), {.rows = 300'000});
  const RowSet all(300'000, true);
  open(dataset, all, 1, {.readers = 2});
  RowBuffer buffer;
  for (int repeat = 0; repeat < 20; ++repeat) {
    open(dataset, all, 1, {.readers = 2})->gather(1, 0, {repeat * 10'000, repeat * 10'000 + 7}, buffer);
  }
}

TEST(SourceBothWays, AreBitEqual) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(
      folder.path(),
      {.rows = 280'000, .float_columns = 3, .rows_per_shard = 90'001, .checksum_block_bytes = 1 << 16});
  const RowSet selected = some_rows(280'000, 0.9);
  const auto mapped = open_source(false, dataset, selected, 8, {.readers = 2});
  const auto two_groups = open_source(true, dataset, selected, 8, {.readers = 2});
  ASSERT_TRUE(is_pooled(*two_groups));
  const auto one_group = BatchSource::open(
      dataset, selected, 8, {.memory_budget_bytes = two_groups->planned_bytes() - 1, .readers = 2});
  ASSERT_NE(one_group->memory_plan().find("1 group"), std::string::npos) << one_group->memory_plan();
  for (const int64_t epoch : {0, 1}) {
    const Reading first = read_epoch(*mapped, dataset, 2, epoch, 3'001);
    for (BatchSource* other : {two_groups.get(), one_group.get()}) {
      const Reading second = read_epoch(*other, dataset, 2, epoch, 3'001);
      ASSERT_EQ(first.rows, second.rows);
      ASSERT_EQ(first.floats, second.floats);
    }
  }
}

TEST(SourceBothWays, ReadMoreShardsThanFilesStayOpen) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 3'000, .rows_per_shard = 10});
  const auto source = open_source(true, dataset, RowSet(3'000, true), 8, {});
  for (const int64_t epoch : {0, 1}) {
    EXPECT_EQ(read_epoch(*source, dataset, 1, epoch, 100).rows, source->row_numbers(epoch, {0, 3'000}));
  }
}

}  // namespace
}  // namespace troika

#include <gtest/gtest.h>

#include "support/make_dataset.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"
#include "troika/data/source.h"

namespace troika {
namespace {

TEST(ScanRows, VisitsTheSelectedRowsInOrder) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 30'000,
                                                       .float_columns = 3,
                                                       .int_columns = 2,
                                                       .rows_per_shard = 9'001,
                                                       .checksum_block_bytes = 4096});
  RowSet selected(dataset.rows);
  std::vector<int64_t> expected;
  for (int64_t row = 0; row < dataset.rows; ++row) {
    if (row % 7 == 3 || (row > 9'000 && row < 9'010)) selected.set(row, true);
    if (selected.contains(row)) expected.push_back(row);
  }
  std::vector<int64_t> got;
  scan_rows(dataset, selected, [&](const RowBuffer& rows) {
    ASSERT_LE(rows.rows, 8192);
    ASSERT_EQ(static_cast<int64_t>(rows.floats.size()), rows.rows * 3);
    ASSERT_EQ(static_cast<int64_t>(rows.ints.size()), rows.rows * 2);
    for (int64_t i = 0; i < rows.rows; ++i) {
      const int64_t row = rows.ints[static_cast<size_t>(i * 2)];
      for (int c = 0; c < 3; ++c) ASSERT_EQ(rows.floats[static_cast<size_t>(i * 3 + c)], test_float(row, c));
      got.push_back(row);
    }
  });
  EXPECT_EQ(got, expected);
}

TEST(ScanRows, VisitsNothingOfNothing) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 100});
  scan_rows(dataset, RowSet(100), [](const RowBuffer&) { FAIL(); });
  const Dataset empty = make_dataset(folder.path(), {.rows = 0});
  scan_rows(empty, RowSet(0), [](const RowBuffer&) { FAIL(); });
}

TEST(ScanRows, ReadsOneKindOfColumnAlone) {
  const TemporaryFolder folder;
  int64_t rows = 0;
  const auto count = [&](const RowBuffer& got) { rows += got.rows; };
  scan_rows(make_dataset(folder.path(), {.rows = 10, .float_columns = 0}), RowSet(10, true), count);
  scan_rows(make_dataset(folder.path(), {.rows = 10, .int_columns = 0}), RowSet(10, true), count);
  EXPECT_EQ(rows, 20);
}

}  // namespace
}  // namespace troika

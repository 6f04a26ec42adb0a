// What is wrong with the files is said by every reader, in time and by name; nobody hangs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/source_reading.h"
#include "support/error_of.h"
#include "support/make_dataset.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"
#include "troika/data/source.h"

namespace troika {
namespace {

void flip_bit(const Path& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(at);
  file.put(byte);
  ASSERT_TRUE(file.good());
}

class SourceFailure : public testing::TestWithParam<bool> {
 protected:
  // 12 bytes a row, 300,000 rows in 3 shards.
  Dataset make() {
    return make_dataset(folder_.path(),
                        {.rows = 300'000, .rows_per_shard = 100'000, .checksum_block_bytes = 65'536});
  }
  std::unique_ptr<BatchSource> open(const Dataset& dataset) {
    const RowSet all(dataset.rows, true);
    const SourceOptions options{.memory_budget_bytes = kAmple, .readers = 2};
    return GetParam() ? open_pooled(dataset, all, 1, options) : BatchSource::open(dataset, all, 1, options);
  }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, SourceFailure, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Pooled" : "Mapped"; });

TEST_P(SourceFailure, AFlippedBitIsNamedToEveryReader) {
  for (const std::string name : {"x-000001.npy", "i-000002.npy"}) {
    const Dataset dataset = make();
    flip_bit(folder_ / name, 200'000);
    const auto source = open(dataset);
    const Reading reading = read_epoch(*source, dataset, 2, 0, 1'000);
    for (const std::string& error : reading.errors) {
      EXPECT_NE(error.find(name), std::string::npos) << error;
      EXPECT_NE(error.find("block 3 (bytes 196608 to 262143)"), std::string::npos) << error;
    }
    RowBuffer buffer;
    EXPECT_NE(error_of([&] { source->gather(0, 1, {5, 5}, buffer); }).find(name), std::string::npos);
  }
}

TEST_P(SourceFailure, AFlippedBitInTheFirstRowIsFound) {
  const Dataset dataset = make();
  flip_bit(folder_ / "x-000000.npy", 130);
  const auto source = open(dataset);
  EXPECT_NE(read_epoch(*source, dataset, 2, 0, 1'000).errors[1].find("block 0 (bytes 0 to 65535)"),
            std::string::npos);
}

// The only window ends in the next shard, whose first checksum block is damaged.
TEST_P(SourceFailure, AFlippedBitBehindAWindowsShardIsNamed) {
  const Dataset dataset = make();
  flip_bit(folder_ / "x-000001.npy", 140);
  RowSet one(dataset.rows);
  one.set(99'990, true);
  SourceOptions options{.memory_budget_bytes = kAmple, .span = 20};
  const auto source =
      GetParam() ? open_pooled(dataset, one, 1, options) : BatchSource::open(dataset, one, 1, options);
  RowBuffer buffer;
  const std::string error = error_of([&] { source->gather(0, 0, {0, 1}, buffer); });
  EXPECT_NE(error.find("x-000001.npy is corrupt: block 0 (bytes 0 to 65535)"), std::string::npos) << error;
  options.span = 10;
  BatchSource::open(dataset, one, 1, options)->gather(0, 0, {0, 1}, buffer);
  EXPECT_EQ(buffer.ints.back(), 99'999);
}

TEST_P(SourceFailure, AFileCutShortIsRefusedAtTheStart) {
  const Dataset dataset = make();
  std::filesystem::resize_file(folder_ / "i-000001.npy", 1'000);
  const std::string error = error_of([&] { open(dataset); });
  EXPECT_NE(error.find("i-000001.npy has 1000 bytes, the manifest says 800128: it was cut short"),
            std::string::npos)
      << error;
}

TEST_P(SourceFailure, AFileThatIsGoneIsNamed) {
  const Dataset dataset = make();
  std::filesystem::remove(folder_ / "x-000002.npy");
  const std::string error = error_of([&] { open(dataset); });
  EXPECT_NE(error.find("x-000002.npy"), std::string::npos) << error;
}

TEST_P(SourceFailure, AnArrayOfAnotherShapeIsRefused) {
  Dataset dataset = make();
  dataset.shards[0].rows -= 1;
  dataset.shards[1].rows += 1;
  const std::string error = error_of([&] { open(dataset); });
  EXPECT_NE(error.find("x-000000.npy has another .npy header than 99999 rows of 1 columns"),
            std::string::npos)
      << error;
}

TEST(SourceFailurePooled, AFileCutShortDuringTheRunEndsEveryReader) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 300'000});
  const auto source = open_pooled(dataset, RowSet(300'000, true), 1, {.readers = 3});
  std::filesystem::resize_file(folder / "x-000000.npy", 200);
  for (const std::string& error : read_epoch(*source, dataset, 3, 0, 1'000).errors) {
    EXPECT_NE(error.find("x-000000.npy ends at byte"), std::string::npos) << error;
  }
}

TEST(SourceFailureScan, NamesAFlippedBit) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 300'000, .checksum_block_bytes = 65'536});
  flip_bit(folder / "i-000000.npy", 2'000'000);
  const std::string error =
      error_of([&] { scan_rows(dataset, RowSet(300'000, true), [](const RowBuffer&) {}); });
  EXPECT_NE(error.find("i-000000.npy is corrupt: block 30"), std::string::npos) << error;
}

}  // namespace
}  // namespace troika

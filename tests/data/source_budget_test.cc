// The memory that a source states is what it holds at most. Counts every allocation of the process.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "data/source_reading.h"
#include "support/make_dataset.h"
#include "support/temporary_folder.h"
#include "troika/base/error.h"
#include "troika/data/source.h"

namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

void* count_in(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t live = live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  for (int64_t peak = peak_bytes; peak < live && !peak_bytes.compare_exchange_weak(peak, live);) {
  }
  return memory;
}

void count_out(void* memory) {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) { return count_in(std::malloc(size)); }
void* operator new[](size_t size) { return count_in(std::malloc(size)); }
// What std::stable_sort takes; without it, memory of the library's would be given back to ours.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  void* const memory = std::malloc(size);
  return memory == nullptr ? nullptr : count_in(memory);
}
void operator delete(void* memory) noexcept { count_out(memory); }
void operator delete[](void* memory) noexcept { count_out(memory); }
void operator delete(void* memory, size_t) noexcept { count_out(memory); }
void operator delete[](void* memory, size_t) noexcept { count_out(memory); }

namespace troika {
namespace {

// Reads two epochs of `source`'s rows in one thread and returns the most bytes alive above `before`.
int64_t peak_of_reading(BatchSource& source, int64_t before) {
  RowBuffer buffer;
  peak_bytes = live_bytes.load();
  for (const int64_t epoch : {0, 1}) {
    for (int64_t at = 0; at < source.size(); at += 1'000) {
      source.gather(0, epoch, {at, std::min(at + 1'000, source.size())}, buffer);
    }
  }
  const auto batch = static_cast<int64_t>(buffer.floats.capacity() * 4 + buffer.ints.capacity() * 8);
  return peak_bytes - before - batch;
}

TEST(SourceBudget, IsKeptWithADatasetManyTimesAsLarge) {
  const TemporaryFolder folder;
  // 48 MB of rows, against a few.
  const Dataset dataset = make_dataset(folder.path(), {.rows = 4'000'000, .rows_per_shard = 1'000'000});
  constexpr uint64_t kBudget = 8'000'000;
  const RowSet all(dataset.rows, true);
  const int64_t before = live_bytes;
  const auto source = BatchSource::open(dataset, all, 1, {.memory_budget_bytes = kBudget});
  EXPECT_NE(source->memory_plan().find("2 groups"), std::string::npos) << source->memory_plan();
  EXPECT_LE(source->planned_bytes(), kBudget);
  const int64_t peak = peak_of_reading(*source, before);
  constexpr int64_t kSmallThings = 64 * 1024;  // messages, names, the thread
  EXPECT_LE(peak, static_cast<int64_t>(source->planned_bytes()) + kSmallThings);
  EXPECT_GE(peak, static_cast<int64_t>(source->planned_bytes()) * 3 / 4)
      << "the plan should be near the truth";
}

TEST(SourceBudget, MapsWhatFitsAndAllocatesLittle) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 1'000'000});
  const RowSet all(dataset.rows, true);
  const int64_t before = live_bytes;
  const auto source = BatchSource::open(dataset, all, 1, {.memory_budget_bytes = 20'000'000});
  EXPECT_NE(source->memory_plan().find("mapped"), std::string::npos) << source->memory_plan();
  EXPECT_LE(source->planned_bytes(), 20'000'000u);
  EXPECT_LE(peak_of_reading(*source, before), 3'000'000);
}

// Windows of 50 rows, and shards that cut through them.
TEST(SourceBudget, IsKeptWithWindows) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 2'000'000, .rows_per_shard = 300'000});
  RowSet starts(dataset.rows, true);
  for (int64_t row = dataset.rows - 49; row < dataset.rows; ++row) starts.set(row, false);
  const int64_t before = live_bytes;
  const auto source = BatchSource::open(dataset, starts, 1, {.memory_budget_bytes = 8'000'000, .span = 50});
  EXPECT_NE(source->memory_plan().find("2 groups"), std::string::npos) << source->memory_plan();
  const int64_t peak = peak_of_reading(*source, before);
  EXPECT_LE(source->planned_bytes(), 8'000'000u);
  EXPECT_LE(peak, static_cast<int64_t>(source->planned_bytes()) + 64 * 1024);
  EXPECT_GE(peak, static_cast<int64_t>(source->planned_bytes()) * 3 / 4);
}

// Every other window crosses shards, so that its rows are copied although the files are mapped.
TEST(SourceBudget, CountsWhatIsCopiedOfMappedFiles) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 100'000, .rows_per_shard = 800});
  RowSet starts(dataset.rows);
  for (int64_t row = 0; row + 400 <= dataset.rows; row += 5) starts.set(row, true);
  const int64_t before = live_bytes;
  const auto source = BatchSource::open(dataset, starts, 1, {.memory_budget_bytes = 20'000'000, .span = 400});
  EXPECT_NE(source->memory_plan().find("mapped"), std::string::npos) << source->memory_plan();
  int64_t files = 0;
  for (const Shard& shard : dataset.shards) files += shard.floats_bytes + shard.ints_bytes;
  const int64_t planned = static_cast<int64_t>(source->planned_bytes()) - files;
  RowBuffer buffer;
  peak_bytes = live_bytes.load();
  for (int64_t at = 0; at < source->size(); at += 100)
    source->gather(0, 0, {at, std::min(at + 100, source->size())}, buffer);
  const int64_t peak =
      peak_bytes - before - static_cast<int64_t>(buffer.floats.capacity() * 4 + buffer.ints.capacity() * 8);
  // The copied rows alone are 600 KB; names of 125 files, thread and queues of the loader are not planned.
  EXPECT_LE(peak, planned + 128 * 1024);
  EXPECT_GE(peak, planned / 2);
}

TEST(SourceBudget, TooSmallIsRefusedWithWhatWouldFit) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 1'000'000});
  try {
    BatchSource::open(dataset, RowSet(dataset.rows, true), 1, {.memory_budget_bytes = 1'000'000});
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("needs at least"), std::string::npos) << text;
    EXPECT_NE(text.find("131,072 rows of 12 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("the budget is 977 KB"), std::string::npos) << text;
  }
}

TEST(SourceBudget, DefaultsToAShareOfTheMachine) {
  const TemporaryFolder folder;
  const Dataset dataset = make_dataset(folder.path(), {.rows = 1'000});
  const auto source = BatchSource::open(dataset, RowSet(1'000, true), 1, {});
  EXPECT_NE(source->memory_plan().find("mapped"), std::string::npos) << source->memory_plan();
}

}  // namespace
}  // namespace troika

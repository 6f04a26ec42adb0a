// The meter counts what its thread allocates, until it is freed, wherever that happens.
#include "troika/parallel/memory_meter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace troika {
namespace {

constexpr int64_t kFloats = 1000, kBytes = 4 * kFloats;

at::Tensor some() { return at::empty({kFloats}); }

TEST(MemoryMeter, KnowsWhatIsHeldAndTheMostThatWas) {
  const MemoryMeter meter;
  at::Tensor kept;
  {
    const MeterScope scope(&meter);
    kept = some();
    const at::Tensor passing = some();
    EXPECT_EQ(meter.current_bytes(), 2 * kBytes);
  }
  EXPECT_EQ(meter.current_bytes(), kBytes);
  EXPECT_EQ(meter.peak_bytes(), 2 * kBytes);
  kept.reset();
  EXPECT_EQ(meter.current_bytes(), 0);
}

TEST(MemoryMeter, CountsNothingOutsideOfItsScope) {
  MemoryMeter meter;
  const at::Tensor before = some();
  at::Tensor again;
  {
    const MeterScope scope(&meter);
    const MeterScope nobody(nullptr);
    again = some();
  }
  const at::Tensor after = some();
  EXPECT_EQ(meter.peak_bytes(), 0);
}

TEST(MemoryMeter, WhoMadeItIsChargedUntilTheLastHolderLetsGo) {
  const MemoryMeter maker, reader;
  at::Tensor made;
  {
    const MeterScope scope(&maker);
    made = some();
  }
  std::thread([&] {
    const MeterScope scope(&reader);
    const at::Tensor held = made.detach();
    made.reset();
    EXPECT_EQ(maker.current_bytes(), kBytes);
    EXPECT_EQ(reader.current_bytes(), 0) << "it is counted once";
  }).join();
  EXPECT_EQ(maker.current_bytes(), 0) << "freed on another thread, in another's scope";
  EXPECT_EQ(reader.current_bytes(), 0);
}

TEST(MemoryMeter, ScopesNestAndTheInnermostCounts) {
  const MemoryMeter outer, inner;
  const MeterScope scope(&outer);
  const at::Tensor one = some();
  at::Tensor two;
  {
    const MeterScope within(&inner);
    two = some();
  }
  const at::Tensor three = some();
  EXPECT_EQ(outer.current_bytes(), 2 * kBytes);
  EXPECT_EQ(inner.current_bytes(), kBytes);
}

TEST(MemoryMeter, RestartsItsPeakFromWhatIsHeld) {
  MemoryMeter meter;
  const MeterScope scope(&meter);
  const at::Tensor kept = some();
  some();
  EXPECT_EQ(meter.peak_bytes(), 2 * kBytes);
  meter.restart_peak();
  EXPECT_EQ(meter.peak_bytes(), kBytes);
}

TEST(MemoryMeter, TensorsMayOutliveIt) {
  at::Tensor kept;
  {
    const MemoryMeter meter;
    const MeterScope scope(&meter);
    kept = at::ones({kFloats});
  }
  EXPECT_EQ(kept.sum().item<float>(), kFloats);
  kept.reset();
}

// oneDNN takes raw memory and gives it back by its address alone.
TEST(MemoryMeter, CountsRawMemoryToo) {
  const MemoryMeter meter;
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  void* const before = allocator->raw_allocate(kBytes);
  void* within = nullptr;
  {
    const MeterScope scope(&meter);
    within = allocator->raw_allocate(kBytes);
  }
  EXPECT_EQ(meter.current_bytes(), kBytes);
  allocator->raw_deallocate(before);
  EXPECT_EQ(meter.current_bytes(), kBytes) << "that was nobody's";
  allocator->raw_deallocate(within);
  EXPECT_EQ(meter.current_bytes(), 0);
}

// That would fill the book with holes that nobody finds the end of.
TEST(MemoryMeter, GivingBackNothingChangesNothing) {
  const MemoryMeter meter;
  const MeterScope scope(&meter);
  std::vector<at::Tensor> held;
  for (int i = 0; i < 5000; ++i) {
    held.push_back(at::empty({1}));
    c10::GetCPUAllocator()->raw_deallocate(nullptr);
  }
  EXPECT_EQ(meter.current_bytes(), 4 * 5000);
  held.clear();
  EXPECT_EQ(meter.current_bytes(), 0);
}

TEST(MemoryMeter, GrowingATensorMovesItsCharge) {
  const MemoryMeter meter;
  const MeterScope scope(&meter);
  const at::Tensor tensor = some();
  tensor.resize_({3 * kFloats});
  EXPECT_EQ(meter.current_bytes(), 3 * kBytes);
  EXPECT_EQ(meter.peak_bytes(), 4 * kBytes) << "both are there while it is copied";
}

// Enough at once, in any order, that the book of charges grows and its entries move.
TEST(MemoryMeter, KeepsTheBookOfManyThreads) {
  constexpr int kThreads = 3, kRounds = 4000;
  std::vector<MemoryMeter> meters(kThreads);
  std::vector<std::vector<at::Tensor>> held(kThreads);
  const auto work = [&](size_t thread) {
    const MeterScope scope(&meters[thread]);
    std::vector<at::Tensor>& mine = held[thread];
    std::mt19937_64 numbers(thread);
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t random = numbers();
      mine.push_back(at::empty({static_cast<int64_t>(1 + random % 50)}));
      if (random % 3 == 0) {
        std::swap(mine[random / 64 % mine.size()], mine.back());
        mine.pop_back();
      }
    }
  };
  const auto on_all = [&](const auto& what) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) threads.emplace_back(what, t);
    for (std::thread& thread : threads) thread.join();
  };
  on_all(work);
  for (size_t t = 0; t < kThreads; ++t) {
    int64_t bytes = 0;
    for (const at::Tensor& tensor : held[t]) bytes += static_cast<int64_t>(tensor.nbytes());
    EXPECT_EQ(meters[t].current_bytes(), bytes);
  }
  on_all([&](size_t thread) { held[(thread + 1) % kThreads].clear(); });
  for (const MemoryMeter& meter : meters) EXPECT_EQ(meter.current_bytes(), 0);
}

}  // namespace
}  // namespace troika

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>
#include <vector>

#include "troika/base/cpu.h"
#include "troika/base/memory.h"

namespace troika {
namespace {

int cores_of_this_thread() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

TEST(Cpu, PinsNeighboursToDisjointCoresAndUnpins) {
  const int cores = usable_cores();
  ASSERT_GE(cores, 1);
  std::thread([&] {
    const int before = cores_of_this_thread();
    pin_to_cores_of_rank(0, cores);
    EXPECT_LE(cores_of_this_thread(), before);
    if (cores == before) {
      EXPECT_EQ(cores_of_this_thread(), 1);
    }
    unpin();
    EXPECT_EQ(cores_of_this_thread(), before);
    pin_to_cores_of_rank(0, cores + 1);  // more ranks than cores: left alone
    EXPECT_EQ(cores_of_this_thread(), before);
  }).join();
}

TEST(Memory, PeakFollowsWhatIsTouched) {
  const uint64_t before = peak_rss_bytes();
  ASSERT_GT(before, 0u);
  std::vector<char> block(256 << 20, 1);
  EXPECT_GE(peak_rss_bytes(), rss_bytes());
  EXPECT_GT(rss_bytes(), uint64_t{200} << 20);
  EXPECT_GT(memory_limit_bytes(), rss_bytes());
  EXPECT_LE(memory_available_bytes(), memory_limit_bytes());
  EXPECT_EQ(block[1], 1);
}

TEST(Memory, HugePagesUnlessTheUserHasDecided) {
  ::unsetenv("THP_MEM_ALLOC_ENABLE");
  prefer_huge_pages();
  EXPECT_STREQ(std::getenv("THP_MEM_ALLOC_ENABLE"), "1");
  ::setenv("THP_MEM_ALLOC_ENABLE", "0", 1);
  prefer_huge_pages();
  EXPECT_STREQ(std::getenv("THP_MEM_ALLOC_ENABLE"), "0");
  ::unsetenv("THP_MEM_ALLOC_ENABLE");
}

}  // namespace
}  // namespace troika

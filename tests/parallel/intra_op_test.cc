#include "troika/parallel/intra_op.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace troika {
namespace {

class IntraOp : public testing::Test {
 protected:
  IntraOp() : before_(at::get_num_threads()) {}
  ~IntraOp() override { at::set_num_threads(before_); }

  /// The threads that took part; every element is visited once.
  size_t threads_used(int threads, int64_t count, int64_t grain) {
    at::set_num_threads(threads);
    std::mutex mutex;
    std::set<std::thread::id> ids;
    std::vector<int> visits(static_cast<size_t>(count));
    in_parallel(count, grain, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    });
    EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(count), 1));
    return ids.size();
  }

 private:
  int before_;
};

TEST_F(IntraOp, UsesAsManyThreadsAsAreAllowed) {
  EXPECT_EQ(threads_used(1, 1000, 1), 1u);
#if !defined(__SANITIZE_THREAD__)  // which doesn't know OpenMP's barriers
  EXPECT_EQ(threads_used(2, 1000, 1), 2u);
  EXPECT_EQ(threads_used(3, 1000, 1), 3u);
#endif
}

TEST_F(IntraOp, SmallWorkStaysOnTheCaller) {
  EXPECT_EQ(threads_used(4, 100, 100), 1u);
  EXPECT_EQ(threads_used(4, 1, 1), 1u);
  EXPECT_EQ(threads_used(4, 0, 1), 0u);
}

TEST_F(IntraOp, AnErrorReachesTheCaller) {
  at::set_num_threads(2);
  EXPECT_THROW(in_parallel(1000, 1,
                           [](int64_t, int64_t end) {
                             if (end == 1000) throw std::runtime_error("one part");
                           }),
               std::runtime_error);
}

}  // namespace
}  // namespace troika

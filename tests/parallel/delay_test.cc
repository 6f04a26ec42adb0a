// Shared weights: no rank writes them before every rank's last backward of the step, and no rank reads them
// before every slice is written. Each rank in turn is held up at the two places where a missing wait would
// show, until the others have gone as far as they can.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "support/delegating_communicator.h"
#include "support/small_models.h"
#include "troika/base/error.h"
#include "troika/comm/rank_group.h"
#include "troika/parallel/micro_batched_reference.h"

namespace troika::test {
namespace {

constexpr int kSteps = 3;
constexpr int kRanks = 3;

/// How many barriers each rank has come to.
class Arrivals {
 public:
  void arrive(int rank) {
    const std::lock_guard lock(mutex_);
    ++counts_[static_cast<size_t>(rank)];
    changed_.notify_all();
  }
  int of(int rank) {
    const std::lock_guard lock(mutex_);
    return counts_[static_cast<size_t>(rank)];
  }
  /// Until all ranks but one have come to `count` barriers.
  void wait_for_others(int but, int count) {
    std::unique_lock lock(mutex_);
    const bool there = changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      for (int r = 0; r < kRanks; ++r) {
        if (r != but && counts_[static_cast<size_t>(r)] < count) return false;
      }
      return true;
    });
    if (!there) fail("the other ranks did not come to barrier {}", count);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<int, kRanks> counts_{};
};

/// Counts a rank's barriers; `after_first` runs between the first barrier of a step and what follows it.
class WatchedCommunicator : public DelegatingCommunicator {
 public:
  WatchedCommunicator(Communicator& inner, Arrivals& arrivals)
      : DelegatingCommunicator(inner), arrivals_(arrivals) {}
  void barrier() override {
    arrivals_.arrive(rank());
    inner_.barrier();
    if (after_next_barrier) std::exchange(after_next_barrier, nullptr)();
  }
  std::function<void()> after_next_barrier;

 private:
  Arrivals& arrivals_;
};

enum class Delay { before_last_backward, before_own_slice, before_first_forward };

class DelayTest : public testing::TestWithParam<std::tuple<Delay, int>> {};

TEST_P(DelayTest, WeightsAreWrittenWhenNobodyReadsThem) {
  const auto [delay, late] = GetParam();
  const int late_rank = late;
  const Delay where = delay;
  const SmallModel model = mlp(40);
  ReplicaOptions options;
  options.optimizer.learning_rate = 0.05;
  const auto pieces = [&](int step) { return pieces_of(30, kRanks, 2, 1, at::kFloat, 7 * step); };

  at::set_num_threads(1);
  std::vector<std::vector<at::Tensor>> expected;  // weights before each step, and after the last
  MicroBatchedReference reference(model.layers, options, kRanks);
  expected.push_back(copies_of(reference.parameters()));
  for (int step = 0; step < kSteps; ++step) {
    reference.step(pieces(step), squared_error);
    expected.push_back(copies_of(reference.parameters()));
  }

  Arrivals arrivals;
  std::atomic<int> held = 0;
  run_thread_ranks(kRanks, {}, [&](Communicator& inner) {
    at::set_num_threads(1);
    WatchedCommunicator communicator(inner, arrivals);
    const int rank = communicator.rank();
    Replica replica(communicator, model.layers, options);
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<size_t>(step);
      const int before = arrivals.of(rank);
      const bool is_late = rank == late_rank;
      const auto hold = [&](int barriers) {
        arrivals.wait_for_others(late_rank, before + barriers);
        ++held;
      };
      if (is_late && where == Delay::before_first_forward && step > 0) {
        hold(1);  // the others have done this step's backward and would write now
        EXPECT_TRUE(bitwise_equal(copies_of(replica.parameters()), expected[at]));
      }
      if (is_late && where == Delay::before_own_slice && step + 1 < kSteps) {
        communicator.after_next_barrier = [&] {
          hold(2);
        };  // the others have written their slices and would go on
      }
      int piece = 0;
      const Loss loss = [&](const Tensors& outputs, const Batch& batch) {
        if (++piece == 2 && is_late && where == Delay::before_last_backward) {
          hold(1);
          EXPECT_TRUE(bitwise_equal(copies_of(replica.parameters()), expected[at]));
        }
        return squared_error(outputs, batch);
      };
      replica.step(pieces(step)[static_cast<size_t>(rank)], loss);
      EXPECT_TRUE(bitwise_equal(copies_of(replica.parameters()), expected[at + 1]))
          << "rank " << rank << ", step " << step + 1;
      communicator.DelegatingCommunicator::barrier();  // uncounted: all have compared
    }
  });
  EXPECT_EQ(held, where == Delay::before_last_backward ? kSteps : kSteps - 1);
}

std::string name_of_case(const testing::TestParamInfo<DelayTest::ParamType>& info) {
  const char* names[] = {"LastBackward", "OwnSlice", "FirstForward"};
  return names[static_cast<int>(std::get<0>(info.param))] + std::string("OfRank") +
         std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(EachRank, DelayTest,
                         testing::Combine(testing::Values(Delay::before_last_backward,
                                                          Delay::before_own_slice,
                                                          Delay::before_first_forward),
                                          testing::Range(0, kRanks)),
                         name_of_case);

}  // namespace
}  // namespace troika::test

// Every wait ends: who is silent is named, with its last words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <memory>

#include "support/comm_buffer.h"
#include "troika/base/clock.h"
#include "troika/base/error.h"
#include "troika/comm/rank_group.h"

namespace troika::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr double kDeadline = 0.3;

std::string failure(int ranks, const std::function<void(Communicator&)>& body) {
  try {
    run_thread_ranks(ranks, {kDeadline, false}, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing failed";
}

using RankBody = std::function<void(Communicator&)>;

// Rank `silent` does `before`, says something and then does nothing until another rank has given up on it.
std::string failure_with_silent_rank(
    int ranks, int silent, const RankBody& others, const RankBody& before = [](Communicator&) {}) {
  std::latch given_up(1);
  std::atomic<bool> first{true};
  return failure(ranks, [&](Communicator& comm) {
    if (comm.rank() == silent) {
      before(comm);
      comm.say("backward", 12);
      return given_up.wait();
    }
    try {
      others(comm);
    } catch (...) {
      if (first.exchange(false)) given_up.count_down();
      throw;
    }
  });
}

TEST(Deadline, ASilentRankIsNamedWithItsLastWords) {
  const std::string text = failure_with_silent_rank(2, 1, [](Communicator& comm) {
    Buffer own(ElementType::float32, 4);
    comm.all_reduce_sum(own.elements());
  });
  EXPECT_THAT(text, MatchesRegex("rank 1 is silent for [0-9.]+ m?s, last: step 12, backward; "
                                 "rank 0 waits in all_reduce_sum"));
}

void compute_for(double seconds) {
  const auto start = Clock::now();
  while (seconds_since(start) < seconds) {
  }
}

// Its second pass is longer than the deadline, but not than ten times its first.
TEST(Deadline, ARankWithLongPassesIsGivenTime) {
  EXPECT_EQ(failure(2,
                    [](Communicator& comm) {
                      comm.barrier();
                      for (const double part : {0.5, 2.0}) {
                        comm.say("forward", 1);
                        if (comm.rank() == 1) compute_for(part * kDeadline);
                        comm.barrier();
                      }
                    }),
            "nothing failed");
}

// Waiting for a peer is no pass of one's own: it earns no patience.
TEST(Deadline, WaitingLongEarnsNoTime) {
  std::latch given_up(1);
  const auto start = Clock::now();
  const std::string text = failure(2, [&](Communicator& comm) {
    if (comm.rank() == 1) compute_for(0.8 * kDeadline);
    comm.barrier();  // rank 0 has waited here
    if (comm.rank() == 0) return given_up.wait();
    try {
      comm.barrier();
    } catch (...) {
      given_up.count_down();
      throw;
    }
  });
  EXPECT_THAT(text, HasSubstr("rank 0 is silent"));
  EXPECT_LT(seconds_since(start), 5 * kDeadline);
}

TEST(Deadline, EveryKindOfWait) {
  const std::string receive = failure_with_silent_rank(2, 1, [](Communicator& comm) {
    Buffer own(ElementType::float32, 4);
    comm.receive(own.elements(), 1, 0);
  });
  EXPECT_THAT(receive,
              AllOf(HasSubstr("rank 1 is silent"), HasSubstr("rank 0 waits in receive from rank 1")));
  const std::string wait = failure_with_silent_rank(2, 1, [](Communicator& comm) {
    Buffer own(ElementType::float32, 4);
    comm.wait(*comm.start_all_reduce_sum(own.elements()));
  });
  EXPECT_THAT(wait, AllOf(HasSubstr("rank 1 is silent"), HasSubstr("rank 0 waits in wait")));
  const std::string test = failure_with_silent_rank(2, 1, [](Communicator& comm) {
    Buffer own(ElementType::float32, 4);
    const auto request = comm.start_all_reduce_sum(own.elements());
    while (!comm.test(*request)) std::this_thread::yield();
  });
  EXPECT_THAT(test, AllOf(HasSubstr("rank 1 is silent"), HasSubstr("rank 0 waits in wait")));
}

TEST(Deadline, TheEndOfAChainIsNamed) {
  // 0 waits for 1, which waits for 2, which is silent.
  const std::string text = failure_with_silent_rank(3, 2, [](Communicator& comm) {
    Buffer own(ElementType::float32, 4);
    comm.receive(own.elements(), comm.rank() + 1, 0);
  });
  EXPECT_THAT(text, HasSubstr("rank 2 is silent"));
}

TEST(Deadline, OneOfSevenIsNamed) {
  const std::string text = failure_with_silent_rank(7, 4, [](Communicator& comm) { comm.barrier(); });
  EXPECT_THAT(text, HasSubstr("rank 4 is silent"));
}

TEST(Deadline, ACircleOfWaitsIsNamed) {
  const std::string text = failure(2, [](Communicator& comm) {
    Buffer own(ElementType::float32, 4);
    comm.receive(own.elements(), 1 - comm.rank(), 0);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("the ranks wait for each other"),
                          HasSubstr("rank 0 waits in receive from rank 1"),
                          HasSubstr("rank 1 waits in receive from rank 0")));
}

// A communicator of two ranks of the whole, the lower one first.
std::unique_ptr<Communicator> pair_of(Communicator& comm, int one, int other) {
  return comm.sub(std::vector<int>{std::min(one, other), std::max(one, other)});
}

TEST(Deadline, TheEndOfAChainThroughOtherCommunicatorsIsNamed) {
  // 0 waits for 3, which waits for 4, which is silent; each in a communicator of its own.
  const RankBody chain = [](Communicator& comm) {
    int64_t number = 0;
    if (comm.rank() == 1 || comm.rank() == 2) return;
    const auto lower = pair_of(comm, 0, 3);
    const auto upper = comm.rank() == 3 ? pair_of(comm, 3, 4) : nullptr;
    (upper ? upper : lower)->receive({&number, 1, ElementType::int64}, 1, 0);
  };
  const std::string text =
      failure_with_silent_rank(5, 4, chain, [](Communicator& comm) { pair_of(comm, 3, 4); });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 4 is silent"), HasSubstr("last: step 12, backward"),
                          HasSubstr("rank 0 waits in receive from rank 3 among ranks 0, 3"),
                          HasSubstr("rank 3 waits in receive from rank 4 among ranks 3, 4")));
}

TEST(Deadline, ACircleThroughOtherCommunicatorsIsNamed) {
  const std::string text = failure(4, [](Communicator& comm) {
    if (comm.rank() == 0) return;
    // 1 waits for 2, 2 for 3, 3 for 1.
    int64_t number = 0;
    const auto one_two = comm.rank() != 3 ? pair_of(comm, 1, 2) : nullptr;
    const auto two_three = comm.rank() != 1 ? pair_of(comm, 2, 3) : nullptr;
    const auto one_three = comm.rank() != 2 ? pair_of(comm, 1, 3) : nullptr;
    Communicator& waits = *(comm.rank() == 1 ? one_two : comm.rank() == 2 ? two_three : one_three);
    waits.receive({&number, 1, ElementType::int64}, 1 - waits.rank(), 0);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("the ranks wait for each other"), HasSubstr("rank 0 has ended"),
                          HasSubstr("rank 1 waits in receive from rank 2 among ranks 1, 2"),
                          HasSubstr("rank 2 waits in receive from rank 3 among ranks 2, 3"),
                          HasSubstr("rank 3 waits in receive from rank 1 among ranks 1, 3")));
}

TEST(Deadline, SubsMadeInACircleAreNamed) {
  const std::string text =
      failure(3, [](Communicator& comm) { pair_of(comm, comm.rank(), (comm.rank() + 1) % 3); });
  EXPECT_THAT(text, AllOf(HasSubstr("the ranks wait for each other"),
                          HasSubstr("rank 0 waits in sub among ranks 0, 1"),
                          HasSubstr("rank 1 waits in sub among ranks 1, 2"),
                          HasSubstr("rank 2 waits in sub among ranks 0, 2")));
}

TEST(Deadline, ARankThatSpeaksIsAliveInAllCommunicators) {
  // 2 waits for 3, which waits for 4, which speaks; the silence of 0 and 1, which have ended, is no matter.
  EXPECT_EQ(failure(5,
                    [](Communicator& comm) {
                      if (comm.rank() < 2) return;
                      int64_t number = 0;
                      const Elements elements{&number, 1, ElementType::int64};
                      const auto lower = comm.rank() < 4 ? pair_of(comm, 2, 3) : nullptr;
                      const auto upper = comm.rank() > 2 ? pair_of(comm, 3, 4) : nullptr;
                      if (comm.rank() == 2) return lower->receive(elements, 1, 0);
                      if (comm.rank() == 3) {
                        upper->receive(elements, 1, 0);
                        return lower->send(elements, 0, 0);
                      }
                      const auto start = Clock::now();
                      for (int64_t step = 0; seconds_since(start) < 3 * kDeadline; ++step) {
                        comm.say("forward", step);
                      }
                      upper->send(elements, 0, 0);
                    }),
            "nothing failed");
}

TEST(Deadline, ARankThatSpeaksIsNotSilent) {
  EXPECT_EQ(failure(3,
                    [](Communicator& comm) {
                      Buffer own(ElementType::float32, 4);
                      if (comm.rank() == 2) {
                        const auto start = Clock::now();
                        for (int64_t step = 0; seconds_since(start) < 3 * kDeadline; ++step)
                          comm.say("forward", step);
                        comm.send(own.elements(), 1, 0);
                      } else if (comm.rank() == 1) {
                        comm.receive(own.elements(), 2,
                                     0);  // says nothing itself, but waits for one who does
                        comm.send(own.elements(), 0, 0);
                      } else {
                        comm.receive(own.elements(), 1, 0);
                      }
                    }),
            "nothing failed");
}

TEST(DeadlineDeathTest, AThreadThatNeverEndsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stuck = [] {
    std::promise<void> never;
    run_thread_ranks(2, {kDeadline, false}, [&](Communicator& comm) {
      if (comm.rank() == 0) fail("the disk is full");
      comm.say("loading", 3);
      never.get_future().wait();
    });
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(1),
              "rank 0: the disk is full.*rank 1 does not end .silent for .*, last: step 3, loading");
}

TEST(DeadlineDeathTest, ASilentThreadEndsTheProcessToo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stuck = [] {
    std::promise<void> never;
    run_thread_ranks(2, {kDeadline, false}, [&](Communicator& comm) {
      if (comm.rank() == 1) never.get_future().wait();
      comm.barrier();
    });
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(1),
              "rank 1 is silent.*rank 0 waits in barrier.*rank 1 does not end");
}

}  // namespace
}  // namespace troika::testing

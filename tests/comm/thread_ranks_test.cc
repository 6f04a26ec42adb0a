// The communicator between threads: the suites that all backends share, and what is its own.
#include "troika/comm/rank_group.h"

#include <atomic>
#include <latch>

#include "support/comm_conformance.h"
#include "support/comm_faults.h"
#include "support/comm_sub.h"
#include "troika/base/cpu.h"
#include "troika/comm/inproc/group.h"
#include "troika/comm/inproc/thread_communicator.h"

namespace troika::testing {
namespace {

const CommBackend kThreads{
    "Threads", {1, 2, 3, 4, 7, 8}, [](int ranks, double deadline_seconds, const RankBody& body) {
      run_thread_ranks(ranks, {deadline_seconds, true}, body);
    }};

CommBackend with_ranks(std::vector<int> ranks) {
  CommBackend backend = kThreads;
  backend.ranks = std::move(ranks);
  return backend;
}

INSTANTIATE_TEST_SUITE_P(All, CommConformance, ::testing::ValuesIn(comm_cases(kThreads)), comm_case_name);
INSTANTIATE_TEST_SUITE_P(MoreThanCores, CommConformance,
                         ::testing::ValuesIn(comm_cases(with_ranks({2 * usable_cores() + 5}))),
                         comm_case_name);
INSTANTIATE_TEST_SUITE_P(OverSubs, CommConformance,
                         ::testing::ValuesIn(comm_cases(over_subs(with_ranks({1, 2, 3, 4})))),
                         comm_case_name);
INSTANTIATE_TEST_SUITE_P(All, CommFaults, ::testing::ValuesIn(comm_cases(with_ranks({2, 3, 7}))),
                         comm_case_name);

TEST(ThreadRanks, OneRankRunsOnTheCallingThread) {
  const auto caller = std::this_thread::get_id();
  run_thread_ranks(1, {}, [&](Communicator&) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  EXPECT_THROW(run_thread_ranks(1, {}, [](Communicator&) { throw 3; }), int);  // as it is
}

TEST(ThreadRanks, EveryRankHasAThreadOfItsOwn) {
  const auto caller = std::this_thread::get_id();
  std::latch together(3);  // passes only if all three run at once
  run_thread_ranks(3, {}, [&](Communicator&) {
    EXPECT_NE(std::this_thread::get_id(), caller);
    together.arrive_and_wait();
  });
}

TEST(ThreadRanks, TheKindOfAnErrorIsKept) {
  const auto throws_on_rank_1 = [](auto thrown) {
    return [thrown](Communicator& comm) {
      if (comm.rank() == 1) throw thrown;
      comm.barrier();
    };
  };
  EXPECT_THROW(run_thread_ranks(2, {}, throws_on_rank_1(UsageError("no such key"))), UsageError);
  try {
    run_thread_ranks(2, {}, throws_on_rank_1(std::out_of_range("index 7")));
    FAIL();
  } catch (const UsageError&) {
    FAIL() << "not a wrong usage";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1: index 7");
  }
  try {
    run_thread_ranks(2, {}, throws_on_rank_1(42));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1: an exception that is not a std::exception");
  }
}

TEST(ThreadRanks, TheFirstCauseWins) {
  // Rank 0 fails with something else because rank 1 failed.
  try {
    run_thread_ranks(2, {}, [](Communicator& comm) {
      if (comm.rank() == 1) fail("first");
      try {
        comm.barrier();
      } catch (const std::exception&) {
        fail("second");
      }
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1: first");
  }
}

TEST(ThreadRanks, AFailureWakesASleepingRank) {
  inproc::World world(2, {600, true});
  const auto all = std::make_shared<inproc::Group>(world);
  std::string said;
  std::thread sleeper([&] {
    inproc::ThreadCommunicator comm(all, 0);
    try {
      comm.barrier();
    } catch (const Error& error) {
      said = error.what();
    }
  });
  while (world.state(0).waits_for.load() != 1) std::this_thread::yield();  // set just before it sleeps
  world.abort(1, std::make_exception_ptr(Error("the disk is full")));
  sleeper.join();
  EXPECT_EQ(said, "ended because of rank 1: the disk is full");
}

TEST(ThreadRanks, AFailureThatIsSwallowedIsStillReported) {
  EXPECT_THROW(run_thread_ranks(2, {},
                                [](Communicator& comm) {
                                  Buffer own(ElementType::float32, 4);
                                  try {
                                    const auto request = comm.start_all_reduce_sum(own.elements());
                                    if (comm.rank() == 1) throw 1;
                                    comm.wait(*request);
                                  } catch (...) {
                                  }
                                }),
               Error);
}

TEST(ThreadRanks, WrongOptionsAreRefused) {
  EXPECT_THROW(run_thread_ranks(0, {}, [](Communicator&) {}), UsageError);
  EXPECT_THROW(run_thread_ranks(2, {0}, [](Communicator&) {}), UsageError);
  EXPECT_THROW(run_thread_ranks(2, {std::nan("")}, [](Communicator&) {}), UsageError);
}

TEST(ThreadRanks, GroupsInsideOfRanks) {
  run_thread_ranks(2, {}, [](Communicator& outer) {
    run_thread_ranks(2, {}, [&](Communicator& inner) {
      Buffer own(ElementType::int64, 1);
      own.set(0, 1 + outer.rank() + inner.rank());
      inner.all_reduce_sum(own.elements());
      EXPECT_EQ(own.get(0), 3 + 2 * outer.rank());
    });
    outer.barrier();
  });
}

}  // namespace
}  // namespace troika::testing

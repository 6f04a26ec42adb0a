// How every communicator must fail: with a name, soon, and on every rank. Instantiated like CommConformance,
// with backends that have at least two ranks.
#pragma once

#include <gmock/gmock.h>

#include "support/comm_conformance.h"
#include "troika/base/clock.h"
#include "troika/base/error.h"

namespace troika::testing {

class CommFaults : public ::testing::TestWithParam<CommCase> {
 protected:
  int ranks() const { return GetParam().ranks; }

  /// What the run says when it fails.
  std::string failure(double deadline_seconds, const RankBody& body) const {
    try {
      GetParam().backend.run(ranks(), deadline_seconds, body);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing failed";
  }
};

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_P(CommFaults, OtherOperation) {
  const std::string text = failure(60, [](Communicator& comm) {
    Buffer own(ElementType::float32, 12);
    if (comm.rank() == 1) return comm.barrier();
    comm.all_reduce_sum(own.elements());
  });
  EXPECT_THAT(text, StartsWith("rank 0 calls all_reduce_sum of 12 float32, rank 1 calls barrier"));
}

TEST_P(CommFaults, OtherSizeTypeOrRoot) {
  const auto mismatch = [&](Elements zero, Elements one, int root_zero, int root_one) {
    return failure(60, [&](Communicator& comm) {
      Buffer own(ElementType::float64, 16);
      Elements elements = comm.rank() == 1 ? one : zero;
      elements.data = own.elements().data;
      comm.broadcast(elements, comm.rank() == 1 ? root_one : root_zero);
    });
  };
  const Elements twelve{nullptr, 12, ElementType::float32};
  EXPECT_THAT(mismatch(twelve, {nullptr, 13, ElementType::float32}, 0, 0),
              AllOf(HasSubstr("rank 0 calls broadcast of 12 float32 from rank 0"),
                    HasSubstr("rank 1 calls broadcast of 13 float32 from rank 0")));
  EXPECT_THAT(mismatch(twelve, {nullptr, 12, ElementType::bfloat16}, 0, 0),
              HasSubstr("rank 1 calls broadcast of 12 bfloat16 from rank 0"));
  EXPECT_THAT(mismatch(twelve, twelve, 0, 1), HasSubstr("rank 1 calls broadcast of 12 float32 from rank 1"));
}

TEST_P(CommFaults, OtherSumUnderWay) {
  const std::string text = failure(60, [](Communicator& comm) {
    Buffer own(ElementType::float32, comm.rank() == 1 ? 7 : 8);
    const auto request = comm.start_all_reduce_sum(own.elements());
    comm.wait(*request);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0 calls start_all_reduce_sum of 8 float32"),
                          HasSubstr("rank 1 calls start_all_reduce_sum of 7 float32")));
}

TEST_P(CommFaults, OtherMessage) {
  const auto mismatch = [&](int64_t count, ElementType type, int64_t tag) {
    return failure(60, [&](Communicator& comm) {
      Buffer own(ElementType::float32, 4);
      Buffer expected(type, count);
      if (comm.rank() == 0) comm.send(own.elements(), 1, 3);
      if (comm.rank() == 1) comm.receive(expected.elements(), 0, tag);
    });
  };
  EXPECT_EQ(mismatch(4, ElementType::float32, 3), "nothing failed");
  EXPECT_EQ(mismatch(5, ElementType::float32, 3),
            "rank 0 sends 4 float32 with tag 3, rank 1 expects 5 float32 with tag 3");
  EXPECT_EQ(mismatch(2, ElementType::float64, 3),
            "rank 0 sends 4 float32 with tag 3, rank 1 expects 2 float64 with tag 3");
  EXPECT_EQ(mismatch(4, ElementType::float32, 4),
            "rank 0 sends 4 float32 with tag 3, rank 1 expects 4 float32 with tag 4");
}

TEST_P(CommFaults, WrongArguments) {
  const auto refused = [&](const std::function<void(Communicator&, Buffer&)>& call) {
    return failure(60, [&](Communicator& comm) {
      Buffer own(ElementType::int64, 12);
      if (comm.rank() == 1) call(comm, own);
      comm.barrier();
    });
  };
  EXPECT_THAT(refused([](Communicator& comm, Buffer& own) { comm.broadcast(own.elements(), 99); }),
              HasSubstr("rank 1: broadcast names rank 99"));
  EXPECT_THAT(
      refused([](Communicator& comm, Buffer& own) { comm.all_reduce_weighted_mean(own.elements(), 1); }),
      HasSubstr("floating point types only"));
  EXPECT_THAT(refused([](Communicator& comm, Buffer&) {
                Buffer some(ElementType::float32, 2);
                comm.all_reduce_weighted_mean(some.elements(), -1);
              }),
              HasSubstr("weight -1"));
  EXPECT_THAT(refused([](Communicator& comm, Buffer& own) {
                comm.reduce_scatter_sum(own.elements(), own.elements());
              }),
              HasSubstr("reduce_scatter_sum of 12 int64 into a part of 12 int64"));
  EXPECT_THAT(
      refused([](Communicator& comm, Buffer& own) { comm.all_gather(own.elements(), own.elements()); }),
      HasSubstr("all_gather of a part of 12 int64"));
}

TEST_P(CommFaults, ARankThatThrowsEndsTheOthers) {
  const std::vector<RankBody> waits = {
      [](Communicator& comm) { comm.barrier(); },
      [](Communicator& comm) {
        Buffer own(ElementType::float32, 4);
        comm.receive(own.elements(), 1, 0);
      },
      [](Communicator& comm) {
        Buffer own(ElementType::float32, 4);
        const auto request = comm.start_all_reduce_sum(own.elements());
        comm.wait(*request);
      },
      [](Communicator& comm) {
        Buffer own(ElementType::float32, 4);
        const auto request = comm.start_all_reduce_sum(own.elements());
        while (!comm.test(*request)) std::this_thread::yield();
      },
  };
  for (const RankBody& wait : waits) {
    const auto start = Clock::now();
    EXPECT_EQ(failure(600,
                      [&](Communicator& comm) {
                        if (comm.rank() == 1) fail("the disk is full");
                        wait(comm);
                      }),
              "rank 1: the disk is full");
    EXPECT_LT(seconds_since(start), 60);  // far from the deadline
  }
}

TEST_P(CommFaults, ARankThatThrowsWithSumsUnderWay) {
  // The elements of the failed rank go away while others may be adding to them: for the address sanitizer.
  for (int repeat = 0; repeat < 30; ++repeat) {
    const std::string text = failure(60, [&](Communicator& comm) {
      std::vector<Buffer> buffers(4, Buffer(ElementType::float32, 5000));
      std::vector<std::unique_ptr<Request>> requests;
      for (Buffer& own : buffers) requests.push_back(comm.start_all_reduce_sum(own.elements()));
      if (comm.rank() == 1 && repeat % 2 == 0) fail("boom");
      comm.wait(*requests[0]);
      if (comm.rank() == 1) fail("boom");
      for (const auto& request : requests) comm.wait(*request);
      comm.barrier();
    });
    EXPECT_EQ(text, "rank 1: boom");
  }
}

TEST_P(CommFaults, AnEndedRankIsNamed) {
  const std::string barrier = failure(60, [](Communicator& comm) {
    if (comm.rank() != 1) comm.barrier();
  });
  EXPECT_THAT(barrier, ::testing::MatchesRegex("rank 1 has ended, rank [0-9] waits in barrier"));
  const std::string receive = failure(60, [](Communicator& comm) {
    Buffer own(ElementType::float32, 4);
    if (comm.rank() == 0) comm.receive(own.elements(), 1, 0);
  });
  EXPECT_EQ(receive, "rank 1 has ended, rank 0 waits in receive from rank 1");
}

TEST_P(CommFaults, ADroppedSumIsNamed) {
  EXPECT_THAT(failure(60,
                      [](Communicator& comm) {
                        Buffer own(ElementType::float32, 4);
                        const auto request = comm.start_all_reduce_sum(own.elements());
                        if (comm.rank() != 1) comm.wait(*request);
                      }),
              HasSubstr("rank 1 drops a start_all_reduce_sum of 4 float32 before it is finished"));
}

}  // namespace troika::testing

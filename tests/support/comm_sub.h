// Sub-communicators of every backend: what they must do, and how they must fail. Part of the suites
// CommConformance and CommFaults: a test program that includes this has them in both.
#pragma once

#include "support/comm_conformance.h"
#include "support/comm_faults.h"
#include "troika/comm/mesh_communicators.h"

namespace troika::testing {

inline std::vector<int> odd_ranks(int below) {
  std::vector<int> ranks;
  for (int rank = 1; rank < below; rank += 2) ranks.push_back(rank);
  return ranks;
}

/// A backend whose communicators are those of the odd ranks; meanwhile the even ranks sum among themselves.
/// So the whole suite can be run on sub-communicators.
inline CommBackend over_subs(const CommBackend& backend) {
  return {backend.name + "Sub", backend.ranks,
          [run = backend.run](int ranks, double deadline_seconds, const RankBody& body) {
            run(2 * ranks + 1, deadline_seconds, [&](Communicator& all) {
              std::vector<int> members = odd_ranks(all.size());
              const bool odd = all.rank() % 2 == 1;
              if (!odd) {
                for (int& member : members) --member;
                members.push_back(all.size() - 1);
              }
              const auto sub = all.sub(members);
              if (odd) return body(*sub);
              for (int round = 0; round < 100; ++round) {
                Buffer own(ElementType::int64, 5);
                own.fill([&](int64_t i) { return whole_number(sub->rank() + round, i); });
                sub->all_reduce_sum(own.elements());
                expect_elements(own, [&](int64_t i) {
                  double sum = 0;
                  for (int rank = 0; rank < sub->size(); ++rank) sum += whole_number(rank + round, i);
                  return sum;
                });
              }
            });
          }};
}

/// The sum over a communicator of one number per rank.
inline int64_t sum_of(Communicator& comm, int64_t number) {
  comm.all_reduce_sum({&number, 1, ElementType::int64});
  return number;
}

TEST_P(CommConformance, SubOfOneRankNeedsNobody) {
  run([](Communicator& comm) {
    if (comm.rank() != comm.size() - 1) return;
    const auto alone = comm.sub(std::vector<int>{comm.rank()});
    EXPECT_EQ(alone->rank(), 0);
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(sum_of(*alone, 7), 7);
    alone->barrier();
    int64_t number = 5;
    alone->send({&number, 1, ElementType::int64}, 0, 1);
    number = 0;
    alone->receive({&number, 1, ElementType::int64}, 0, 1);
    EXPECT_EQ(number, 5);
    const auto request = alone->start_all_reduce_sum({&number, 1, ElementType::int64});
    EXPECT_TRUE(alone->test(*request));
    EXPECT_EQ(number, 5);
  });
}

TEST_P(CommConformance, SubsMayOverlap) {
  // Each rank is in one with the rank before and one with the rank after; all are used at once.
  run([](Communicator& comm) {
    const int own = comm.rank(), last = comm.size() - 1;
    const auto before = own > 0 ? comm.sub(std::vector<int>{own - 1, own}) : nullptr;
    const auto after = own < last ? comm.sub(std::vector<int>{own, own + 1}) : nullptr;
    for (int64_t round = 0; round < 50; ++round) {
      int64_t to_after = 100 * own + round, from_before = -1, down = 100 * own, up = 1000 * own;
      // The same tag in every communicator: messages don't stray.
      if (after) after->send({&to_after, 1, ElementType::int64}, 1, 0);
      const auto lower = before ? before->start_all_reduce_sum({&down, 1, ElementType::int64}) : nullptr;
      const auto upper = after ? after->start_all_reduce_sum({&up, 1, ElementType::int64}) : nullptr;
      if (before) before->receive({&from_before, 1, ElementType::int64}, 0, 0);
      EXPECT_EQ(from_before, before ? 100 * (own - 1) + round : -1);
      EXPECT_EQ(sum_of(comm, 1), comm.size());
      if (after) after->wait(*upper);
      if (before) before->wait(*lower);
      EXPECT_EQ(down, before ? 100 * own + 1000 * (own - 1) : 100 * own);
      EXPECT_EQ(up, after ? 1000 * own + 100 * (own + 1) : 1000 * own);
    }
  });
}

TEST_P(CommConformance, SubsOfTheSameMembersAreApart) {
  run([](Communicator& comm) {
    std::vector<int> all(static_cast<size_t>(comm.size()));
    std::iota(all.begin(), all.end(), 0);
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (int round = 0; round < 20; ++round) {
      const auto one = comm.sub(all);
      const auto two = comm.sub(all);
      for (int64_t number : {1, 2}) {
        (number == 1 ? one : two)->send({&number, 1, ElementType::int64}, next, 0);
      }
      for (int64_t expected : {2, 1}) {
        int64_t number = 0;
        (expected == 1 ? one : two)->receive({&number, 1, ElementType::int64}, previous, 0);
        EXPECT_EQ(number, expected);
      }
    }
  });
}

TEST_P(CommConformance, SubOfASub) {
  run([](Communicator& comm) {
    if (comm.rank() == 0) return;  // has no part in it
    std::vector<int> members(static_cast<size_t>(comm.size() - 1));
    std::iota(members.begin(), members.end(), 1);
    const auto sub = comm.sub(members);
    const std::vector<int> odd = odd_ranks(sub->size());  // ranks 2, 4... of the whole
    if (sub->rank() % 2 == 0) return sub->barrier();
    const auto inner = sub->sub(odd);
    EXPECT_EQ(inner->size(), (comm.size() - 1) / 2);
    EXPECT_EQ(comm.rank(), 2 * (inner->rank() + 1));
    EXPECT_EQ(sum_of(*inner, comm.rank()), inner->size() * (inner->size() + 1));
    sub->barrier();
  });
}

TEST_P(CommConformance, SumsUnderWayGoOnInWaitsOfOtherCommunicators) {
  run([](Communicator& comm) {
    std::vector<int> all(static_cast<size_t>(comm.size()));
    std::iota(all.begin(), all.end(), 0);
    const auto data = comm.sub(all);
    const auto pipeline = comm.sub(all);
    Buffer own(ElementType::float32, 4001);
    own.fill([&](int64_t i) { return whole_number(comm.rank(), i); });
    Buffer done(ElementType::int64, 1);
    const auto request = data->start_all_reduce_sum(own.elements());
    // Rank 0 first waits for messages that the others send after the sum: they need its part of it.
    if (comm.rank() != 0) {
      data->wait(*request);
      pipeline->send(done.elements(), 0, 0);
    } else {
      for (int peer = 1; peer < comm.size(); ++peer) pipeline->receive(done.elements(), peer, 0);
      data->wait(*request);
    }
    expect_elements(own, [&](int64_t i) { return sum_over_ranks(comm.size(), i); });
  });
}

TEST_P(CommConformance, SumsUnderWayGoOnWhileAnotherCommunicatorIsTested) {
  run([](Communicator& comm) {
    std::vector<int> all(static_cast<size_t>(comm.size()));
    std::iota(all.begin(), all.end(), 0);
    const auto sub = comm.sub(all);
    int64_t first = 1, second = 1;
    const auto early = comm.start_all_reduce_sum({&first, 1, ElementType::int64});
    // Rank 0 only tests a sum that the others start after the first one.
    if (comm.rank() != 0) comm.wait(*early);
    const auto late = sub->start_all_reduce_sum({&second, 1, ElementType::int64});
    while (!sub->test(*late)) std::this_thread::yield();
    comm.wait(*early);
    EXPECT_EQ(first + second, 2 * comm.size());
  });
}

TEST_P(CommConformance, EveryMeshOfSoManyRanks) {
  run([](Communicator& comm) {
    for (int data = 1; data <= comm.size(); ++data) {
      for (int pipeline = 1; data * pipeline <= comm.size(); ++pipeline) {
        const Mesh mesh{data, pipeline, comm.size() / (data * pipeline)};
        if (mesh.ranks() != comm.size()) continue;
        const Coordinate at = mesh.coordinate(comm.rank());
        const MeshCommunicators axes = split(comm, mesh);
        EXPECT_EQ(axes.data->size(), mesh.data);
        EXPECT_EQ(axes.pipeline->size(), mesh.pipeline);
        EXPECT_EQ(axes.tensor->size(), mesh.tensor);
        EXPECT_EQ((Coordinate{axes.data->rank(), axes.pipeline->rank(), axes.tensor->rank()}), at);
        for (int round = 0; round < 10; ++round) {
          // Where each peer stands: one decimal place per axis; 10 peers at most.
          const int64_t place = 100 * at.data + 10 * at.pipeline + at.tensor;
          int64_t over_data = place;
          const auto request = axes.data->start_all_reduce_sum({&over_data, 1, ElementType::int64});
          const auto sum = [](int degree, int64_t own, int64_t place_of_one) {
            return degree * own + place_of_one * degree * (degree - 1) / 2;
          };
          EXPECT_EQ(sum_of(*axes.tensor, place), sum(mesh.tensor, place - at.tensor, 1));
          int64_t message = place;
          if (at.pipeline + 1 < mesh.pipeline) {
            axes.pipeline->send({&message, 1, ElementType::int64}, at.pipeline + 1, round);
          }
          if (at.pipeline > 0) {
            axes.pipeline->receive({&message, 1, ElementType::int64}, at.pipeline - 1, round);
            EXPECT_EQ(message, place - 10);
          }
          axes.data->wait(*request);
          EXPECT_EQ(over_data, sum(mesh.data, place - 100 * at.data, 100));
        }
      }
    }
  });
}

TEST_P(CommConformance, SharedMemoryIsShared) {
  run([](Communicator& comm) {
    if (!comm.shares_memory()) return;
    const int own = 100 + comm.rank();
    const int* pointer = &own;
    Buffer sent(ElementType::int64, 1);
    std::memcpy(sent.elements().data, &pointer, sizeof pointer);
    comm.send(sent.elements(), (comm.rank() + 1) % comm.size(), 0);
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    comm.receive(sent.elements(), previous, 0);
    std::memcpy(&pointer, sent.elements().data, sizeof pointer);
    EXPECT_EQ(*pointer, 100 + previous);
    comm.barrier();
  });
}

TEST_P(CommFaults, AMeshOfAnotherNumberOfRanksIsRefused) {
  EXPECT_THAT(failure(60,
                      [](Communicator& comm) {
                        split(comm, {comm.size() + 1, 1, 1});
                      }),
              HasSubstr("mesh data="));
}

TEST_P(CommFaults, OtherMembers) {
  if (ranks() < 3) return;
  EXPECT_THAT(failure(60,
                      [](Communicator& comm) {
                        if (comm.rank() == 0) comm.sub(std::vector<int>{0, 1});
                        if (comm.rank() == 1) comm.sub(std::vector<int>{0, 1, 2});
                        comm.barrier();  // one that has ended would be reported first
                      }),
              StartsWith("rank 0 calls sub of ranks 0, 1, rank 1 calls sub of ranks 0, 1, 2; every member"));
  // In a sub-communicator the members are named as in the whole.
  EXPECT_THAT(failure(60,
                      [](Communicator& comm) {
                        if (comm.rank() == 0 || comm.rank() > 2) return;
                        const auto sub = comm.sub(std::vector<int>{1, 2});
                        if (sub->rank() == 0) sub->sub(std::vector<int>{0, 1});
                        if (sub->rank() == 1) sub->sub(std::vector<int>{1});
                      }),
              StartsWith("rank 2 has ended, rank 1 waits in sub among ranks 1, 2"));
}

TEST_P(CommFaults, WrongMembersAreRefused) {
  const std::vector<std::vector<int>> wrong = {{}, {0}, {1, 0}, {1, 1}, {-1, 1}, {1, 99}};
  for (const std::vector<int>& members : wrong) {
    EXPECT_THAT(failure(60,
                        [&](Communicator& comm) {
                          if (comm.rank() == 1) comm.sub(members);
                          comm.barrier();
                        }),
                StartsWith("rank 1: sub of members ["));
  }
}

TEST_P(CommFaults, RanksOfASubAreNamedAsInTheWhole) {
  if (ranks() < 3) return;
  const auto in_sub = [&](const RankBody& body) {
    return failure(60, [&](Communicator& comm) {
      if (comm.rank() != 1 && comm.rank() != 2) return;
      body(*comm.sub(std::vector<int>{1, 2}));
    });
  };
  Buffer buffers[2] = {{ElementType::float32, 12}, {ElementType::float32, 12}};
  const auto elements = [&](Communicator& sub) { return buffers[sub.rank()].elements(); };
  EXPECT_THAT(
      in_sub([&](Communicator& sub) {
        if (sub.rank() == 1) return sub.barrier();
        sub.all_reduce_sum(elements(sub));
      }),
      StartsWith("rank 1 calls all_reduce_sum of 12 float32, rank 2 calls barrier among ranks 1, 2;"));
  EXPECT_THAT(in_sub([&](Communicator& sub) { sub.broadcast(elements(sub), sub.rank()); }),
              AllOf(HasSubstr("rank 1 calls broadcast of 12 float32 from rank 1,"),
                    HasSubstr("rank 2 calls broadcast of 12 float32 from rank 2 among ranks 1, 2")));
  EXPECT_EQ(in_sub([&](Communicator& sub) {
              if (sub.rank() == 0) return sub.send(elements(sub), 1, 3);
              sub.receive(elements(sub), 0, 4);
            }),
            "rank 1 sends 12 float32 with tag 3, rank 2 expects 12 float32 with tag 4 among ranks 1, 2");
  EXPECT_EQ(in_sub([&](Communicator& sub) {
              if (sub.rank() == 1) sub.receive(elements(sub), 0, 0);
            }),
            "rank 1 has ended, rank 2 waits in receive from rank 1 among ranks 1, 2");
  EXPECT_THAT(in_sub([&](Communicator& sub) {
                Elements part = elements(sub);
                part.count -= sub.rank();
                sub.wait(*sub.start_all_reduce_sum(part));
              }),
              HasSubstr("rank 1 calls start_all_reduce_sum of 12 float32, rank 2 calls start_all_reduce_sum "
                        "of 11 float32 among ranks 1, 2"));
  EXPECT_THAT(in_sub([&](Communicator& sub) {
                const auto request = sub.start_all_reduce_sum(elements(sub));
                if (sub.rank() == 0) sub.wait(*request);
              }),
              HasSubstr("rank 2 drops a start_all_reduce_sum of 12 float32"));
  EXPECT_EQ(in_sub([&](Communicator& sub) {
              if (sub.rank() == 1) sub.broadcast(elements(sub), 2);
              sub.barrier();
            }),
            "rank 2: broadcast names member 2, but the members are 0 to 1: ranks 1, 2");
}

TEST_P(CommFaults, ARankThatThrowsEndsTheOthersInAllCommunicators) {
  if (ranks() < 3) return;
  const auto start = Clock::now();
  // Ranks 0 and 1 wait for each other; neither has a communicator with rank 2 but that of all.
  EXPECT_EQ(failure(600,
                    [](Communicator& comm) {
                      Buffer own(ElementType::float32, 4);
                      if (comm.rank() == 2) {
                        comm.receive(own.elements(), 1, 0);
                        fail("the disk is full");
                      }
                      if (comm.rank() > 2) return comm.barrier();
                      const auto sub = comm.sub(std::vector<int>{0, 1});
                      if (comm.rank() == 1) comm.send(own.elements(), 2, 0);
                      sub->receive(own.elements(), 1 - sub->rank(), 0);
                    }),
            "rank 2: the disk is full");
  EXPECT_LT(seconds_since(start), 60);  // far from the deadline
}

TEST_P(CommFaults, ARankThatThrowsWithSumsUnderWayInManyCommunicators) {
  // The elements of the failed rank go away while others may be adding to them: for the address sanitizer.
  for (int repeat = 0; repeat < 20; ++repeat) {
    const std::string text = failure(60, [&](Communicator& comm) {
      const int own = comm.rank(), last = comm.size() - 1;
      std::vector<std::unique_ptr<Communicator>> subs;
      if (own > 0) subs.push_back(comm.sub(std::vector<int>{own - 1, own}));
      if (own < last) subs.push_back(comm.sub(std::vector<int>{own, own + 1}));
      std::vector<Buffer> buffers(subs.size(), Buffer(ElementType::float32, 5000));
      std::vector<std::unique_ptr<Request>> requests;
      for (size_t i = 0; i < subs.size(); ++i) {
        requests.push_back(subs[i]->start_all_reduce_sum(buffers[i].elements()));
      }
      if (own == 1 && repeat % 2 == 0) fail("boom");
      for (size_t i = 0; i < subs.size(); ++i) subs[i]->wait(*requests[i]);
      if (own == 1) fail("boom");
      comm.barrier();
    });
    EXPECT_EQ(text, "rank 1: boom");
  }
}

}  // namespace troika::testing

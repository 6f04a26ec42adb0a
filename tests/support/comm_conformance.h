// What every communicator must do, whatever carries it. A test program includes this once and instantiates
// the suite with its backends:
//   INSTANTIATE_TEST_SUITE_P(Threads, CommConformance, testing::ValuesIn(comm_cases(backend)),
//   comm_case_name);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/comm_buffer.h"
#include "troika/base/split.h"
#include "troika/comm/communicator.h"

namespace troika::testing {

using RankBody = std::function<void(Communicator&)>;

struct CommBackend {
  std::string name;
  std::vector<int> ranks;  // numbers of ranks it is tested with
  /// Runs the body on so many ranks; rethrows what run_thread_ranks would.
  std::function<void(int ranks, double deadline_seconds, const RankBody& body)> run;
};

struct CommCase {
  CommBackend backend;
  int ranks;
};

inline std::vector<CommCase> comm_cases(const CommBackend& backend) {
  std::vector<CommCase> cases;
  for (int ranks : backend.ranks) cases.push_back({backend, ranks});
  return cases;
}

inline std::string comm_case_name(const ::testing::TestParamInfo<CommCase>& info) {
  return info.param.backend.name + std::to_string(info.param.ranks);
}

class CommConformance : public ::testing::TestWithParam<CommCase> {
 protected:
  int ranks() const { return GetParam().ranks; }
  void run(const RankBody& body) const { GetParam().backend.run(ranks(), 60, body); }
};

// 0, 1, fewer than ranks, odd, a line more or less, and more than any block.
inline const std::vector<int64_t> kSizes = {0, 1, 3, 13, 64, 1023, 20011};

/// Runs the check for every type and size.
inline void for_types_and_sizes(const std::function<void(ElementType, int64_t)>& check) {
  for (ElementType type : kAllTypes) {
    for (int64_t count : kSizes) {
      SCOPED_TRACE(std::string(name_of(type)) + " x " + std::to_string(count));
      check(type, count);
    }
  }
}

/// Fails at the first element that isn't what is expected.
template <typename Function>
void expect_elements(const Buffer& buffer, Function expected) {
  for (int64_t i = 0; i < buffer.count(); ++i) {
    if (buffer.get(i) != expected(i)) {
      ADD_FAILURE() << "element " << i << " is " << buffer.get(i) << ", expected " << expected(i);
      return;
    }
  }
}

inline double sum_over_ranks(int ranks, int64_t index) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += whole_number(rank, index);
  return sum;
}

TEST_P(CommConformance, RanksAreNumbered) {
  std::vector<int> seen(static_cast<size_t>(ranks()), 0);
  run([&](Communicator& comm) {
    EXPECT_EQ(comm.size(), ranks());
    ++seen[static_cast<size_t>(comm.rank())];
  });
  EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(ranks()), 1));
}

TEST_P(CommConformance, AllReduceSum) {
  run([&](Communicator& comm) {
    for_types_and_sizes([&](ElementType type, int64_t count) {
      Buffer own(type, count);
      own.fill([&](int64_t i) { return whole_number(comm.rank(), i); });
      comm.all_reduce_sum(own.elements());
      expect_elements(own, [&](int64_t i) { return sum_over_ranks(comm.size(), i); });
    });
  });
}

TEST_P(CommConformance, SumsAreTakenInRankOrder) {
  run([&](Communicator& comm) {
    for (ElementType type : {ElementType::float32, ElementType::float64}) {
      Buffer own(type, 5003);
      own.fill([&](int64_t i) { return uneven_number(comm.rank(), i); });
      comm.all_reduce_sum(own.elements());
      Buffer expected(type, own.count());
      expected.fill([&](int64_t i) { return uneven_number(0, i); });
      for (int rank = 1; rank < comm.size(); ++rank) {
        for (int64_t i = 0; i < own.count(); ++i) {
          Buffer next(type, 1);
          next.set(0, uneven_number(rank, i));
          const double exact =
              expected.get(i) + next.get(0);  // float32: the rounding of set() is the only one
          expected.set(i, exact);
        }
      }
      EXPECT_EQ(own.bytes(), expected.bytes());
    }
  });
}

TEST_P(CommConformance, BFloat16IsSummedInFloat32AndRoundedOnce) {
  run([&](Communicator& comm) {
    Buffer own(ElementType::bfloat16, 17);
    own.fill([&](int64_t) { return comm.rank() == 0 ? 256 : 1; });
    comm.all_reduce_sum(own.elements());
    const float exact = 256.0f + static_cast<float>(comm.size() - 1);
    expect_elements(own, [&](int64_t) { return bfloat16_to_float(float_to_bfloat16(exact)); });
  });
}

TEST_P(CommConformance, SameBitsOnEveryRankAndInEveryRun) {
  std::vector<std::vector<std::byte>> results(static_cast<size_t>(ranks()) * 3);
  for (int repeat = 0; repeat < 3; ++repeat) {
    run([&](Communicator& comm) {
      auto& result = results[static_cast<size_t>(repeat * ranks() + comm.rank())];
      for (ElementType type : kAllTypes) {
        Buffer own(type, 4099);
        own.fill([&](int64_t i) { return uneven_number(comm.rank(), i); });
        comm.all_reduce_sum(own.elements());
        if (type != ElementType::int64) comm.all_reduce_weighted_mean(own.elements(), comm.rank() + 0.3);
        result.insert(result.end(), own.bytes().begin(), own.bytes().end());
      }
    });
  }
  for (const auto& result : results) EXPECT_TRUE(result == results[0]);
}

TEST_P(CommConformance, WeightedMean) {
  run([&](Communicator& comm) {
    for_types_and_sizes([&](ElementType type, int64_t count) {
      if (type == ElementType::int64) return;
      // Weights 1, 2, 3...; the values are whole multiples of the total, so the mean is a whole number.
      const double total = comm.size() * (comm.size() + 1) / 2.0;
      const auto value = [&](int rank, int64_t i) { return total * static_cast<double>((i + rank) % 5 - 2); };
      Buffer own(type, count);
      own.fill([&](int64_t i) { return value(comm.rank(), i); });
      comm.all_reduce_weighted_mean(own.elements(), comm.rank() + 1);
      expect_elements(own, [&](int64_t i) {
        double sum = 0;
        for (int rank = 0; rank < comm.size(); ++rank) sum += (rank + 1) * value(rank, i);
        return sum / total;
      });
    });
  });
}

TEST_P(CommConformance, WeightZeroContributesNothingNotEvenNaN) {
  run([&](Communicator& comm) {
    for (ElementType type : {ElementType::float32, ElementType::float64, ElementType::bfloat16}) {
      // The last rank has no weight; alone, the mean is 0.
      const bool silent = comm.rank() == comm.size() - 1;
      Buffer own(type, 1025);
      own.fill([&](int64_t i) { return silent ? std::nan("") : static_cast<double>(i % 100); });
      comm.all_reduce_weighted_mean(own.elements(), silent ? 0 : 1.5);
      expect_elements(own, [&](int64_t i) { return comm.size() == 1 ? 0 : static_cast<double>(i % 100); });

      own.fill([](int64_t) { return std::nan(""); });
      comm.all_reduce_weighted_mean(own.elements(), 0);
      expect_elements(own, [](int64_t) { return 0; });
    }
  });
}

TEST_P(CommConformance, ReduceScatterSum) {
  run([&](Communicator& comm) {
    for_types_and_sizes([&](ElementType type, int64_t count) {
      const auto value = [](int rank, int64_t i) { return whole_number(rank, i); };
      Buffer own(type, count);
      own.fill([&](int64_t i) { return value(comm.rank(), i); });
      const Buffer before = own;
      const Range mine = share({0, count}, comm.size(), comm.rank());
      Buffer part(type, mine.size());
      comm.reduce_scatter_sum(own.elements(), part.elements());
      expect_elements(part, [&](int64_t i) { return sum_over_ranks(comm.size(), mine.begin + i); });
      EXPECT_EQ(own.bytes(), before.bytes());
    });
  });
}

TEST_P(CommConformance, AllGather) {
  run([&](Communicator& comm) {
    for_types_and_sizes([&](ElementType type, int64_t count) {
      const auto value = [](int64_t i) { return static_cast<double>(i % 127); };
      const Range mine = share({0, count}, comm.size(), comm.rank());
      Buffer part(type, mine.size());
      part.fill([&](int64_t i) { return value(mine.begin + i); });
      Buffer all(type, count);
      comm.all_gather(part.elements(), all.elements());
      expect_elements(all, value);
    });
  });
}

TEST_P(CommConformance, Broadcast) {
  run([&](Communicator& comm) {
    for_types_and_sizes([&](ElementType type, int64_t count) {
      for (int root = 0; root < comm.size(); ++root) {
        Buffer own(type, count);
        own.fill([&](int64_t i) { return whole_number(comm.rank(), i); });
        comm.broadcast(own.elements(), root);
        expect_elements(own, [&](int64_t i) { return whole_number(root, i); });
      }
    });
  });
}

TEST_P(CommConformance, BarrierWaitsForEverybody) {
  std::vector<int> here(static_cast<size_t>(ranks()), 0);  // not atomic: the barrier orders it
  run([&](Communicator& comm) {
    for (int round = 1; round <= 50; ++round) {
      here[static_cast<size_t>(comm.rank())] = round;
      comm.barrier();
      EXPECT_EQ(std::accumulate(here.begin(), here.end(), 0), round * comm.size());
      comm.barrier();
    }
  });
}

TEST_P(CommConformance, MessagesArriveInOrderAndWithoutWaiting) {
  run([&](Communicator& comm) {
    constexpr int kMessages = 40;
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (ElementType type : kAllTypes) {
      // Everybody sends everything before anybody receives.
      for (int message = 0; message < kMessages; ++message) {
        Buffer own(type, message * 11);
        own.fill([&](int64_t i) { return whole_number(comm.rank() + message, i); });
        comm.send(own.elements(), next, message);
        own.fill([](int64_t) { return -1; });  // the message was copied out
      }
      for (int message = 0; message < kMessages; ++message) {
        Buffer theirs(type, message * 11);
        comm.receive(theirs.elements(), previous, message);
        expect_elements(theirs, [&](int64_t i) { return whole_number(previous + message, i); });
      }
    }
  });
}

TEST_P(CommConformance, SumsUnderWayFinishInAnyOrder) {
  run([&](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      std::vector<Buffer> buffers;
      std::vector<std::unique_ptr<Request>> requests;
      buffers.reserve(8);
      for (int bucket = 0; bucket < 8; ++bucket) {
        Buffer& own = buffers.emplace_back(kAllTypes[static_cast<size_t>(bucket % 4)], bucket * 301);
        own.fill([&](int64_t i) { return whole_number(comm.rank(), i + bucket); });
        requests.push_back(comm.start_all_reduce_sum(own.elements()));
        comm.test(*requests.front());
      }
      if (round % 3 == 0) comm.barrier();  // other calls meanwhile
      for (size_t i = 0; i < requests.size(); ++i) {
        // Each rank waits in an order of its own.
        const size_t which = (i * 3 + static_cast<size_t>(comm.rank() + round)) % requests.size();
        if (which % 2 == 0) {
          while (!comm.test(*requests[which])) std::this_thread::yield();
        } else {
          comm.wait(*requests[which]);
        }
        comm.wait(*requests[which]);  // again is fine
        EXPECT_TRUE(comm.test(*requests[which]));
        expect_elements(buffers[which], [&](int64_t place) {
          return sum_over_ranks(comm.size(), place + static_cast<int64_t>(which));
        });
      }
    }
  });
}

TEST_P(CommConformance, SumsUnderWayGoOnInOtherWaits) {
  run([&](Communicator& comm) {
    Buffer own(ElementType::float32, 4001);
    own.fill([&](int64_t i) { return whole_number(comm.rank(), i); });
    Buffer done(ElementType::int64, 1);
    const auto request = comm.start_all_reduce_sum(own.elements());
    // Rank 0 first waits for messages that the others send after the sum: they need its part of it.
    if (comm.rank() != 0) {
      comm.wait(*request);
      comm.send(done.elements(), 0, 0);
    } else {
      for (int peer = 1; peer < comm.size(); ++peer) comm.receive(done.elements(), peer, 0);
      comm.wait(*request);
    }
    expect_elements(own, [&](int64_t i) { return sum_over_ranks(comm.size(), i); });
  });
}

TEST_P(CommConformance, ALongMixOfCalls) {
  run([&](Communicator& comm) {
    std::mt19937 same(7);  // the same decisions on every rank
    for (int step = 0; step < 400; ++step) {
      const auto count = static_cast<int64_t>(same() % 200);
      Buffer own(ElementType::float32, count);
      own.fill([&](int64_t i) { return whole_number(comm.rank() + step, i); });
      const auto sum = [&](int64_t i) {
        double total = 0;
        for (int rank = 0; rank < comm.size(); ++rank) total += whole_number(rank + step, i);
        return total;
      };
      const int root = static_cast<int>(same() % static_cast<unsigned>(comm.size()));
      switch (same() % 4) {
        case 0:
          comm.all_reduce_sum(own.elements());
          expect_elements(own, sum);
          break;
        case 1:
          comm.broadcast(own.elements(), root);
          expect_elements(own, [&](int64_t i) { return whole_number(root + step, i); });
          break;
        case 2:
          comm.barrier();
          break;
        case 3: {
          const auto request = comm.start_all_reduce_sum(own.elements());
          comm.wait(*request);
          expect_elements(own, sum);
        }
      }
    }
  });
}

}  // namespace troika::testing

// The parts of zb-auto's search: every rule makes orders that run within the limit and take as long as it
// says; the bound is one; improving never makes worse.
#include <gtest/gtest.h>

#include "schedule/pass_run.h"
#include "troika/schedule/catalogue/zb_auto_improve.h"

namespace troika::zb_auto {
namespace {

constexpr PassTimes kTimes[] = {{1, 1, 1, 0}, {11.25, 11.5, 8, 0.5}, {4, 5, 9, 0.25}, {2, 1, 0, 3}};

Schedule schedule_of(const Order& order) {
  const int lanes = static_cast<int>(order.size());
  Schedule schedule =
      empty_schedule(Kind::train, static_cast<int>(order[0].size()) / 3, loop_layout(lanes, 1));
  constexpr Op kOps[] = {Op::forward, Op::backward_input, Op::backward_weight};
  for (int lane = 0; lane < lanes; ++lane) {
    int next[3] = {};
    for (const Pass pass : order[static_cast<size_t>(lane)]) {
      const auto kind = static_cast<size_t>(pass);
      schedule.lanes[static_cast<size_t>(lane)].push_back({kOps[kind], lane, next[kind]++});
    }
  }
  return schedule;
}

void expect_as_scored(const Problem& problem, const Made& made, const PassTimes& times,
                      const std::string& what) {
  const PassRun run = run_passes(schedule_of(made.order), times);
  ASSERT_EQ(run.wrong, "") << what;
  const double second = static_cast<double>(problem.forward) / times.forward_s;
  EXPECT_NEAR(static_cast<double>(made.score.cost) / second, run.cost, 1e-9 * run.cost) << what;
  EXPECT_NEAR(static_cast<double>(made.score.makespan) / second, run.makespan, 1e-9 * run.makespan) << what;
  EXPECT_EQ(made.score.peak, run.peak_held) << what;
  EXPECT_LE(run.peak_held, problem.limit) << what;
  EXPECT_GE(made.score.cost, least_cost(problem)) << what;
  EXPECT_GE(made.score.makespan, least_makespan(problem)) << what;
}

TEST(ZbAutoSearch, EveryRuleMakesOrdersThatRun) {
  int round = 0;
  for (int lanes = 1; lanes <= 8; ++lanes) {
    for (const int micro_batches : {1, 2, 3, 7, 16}) {
      for (const int limit : {1, 2, 3, lanes, lanes + 2, 2 * lanes, 40}) {
        const PassTimes& times = kTimes[round++ % 4];
        const Problem problem = make_problem(lanes, micro_batches, limit, times);
        int number = 0;
        for_each_policy(problem, [&](const Policy& policy) {
          // Another part of the rules each time, so that all are used often.
          if (++number % 97 == round % 97) {
            expect_as_scored(problem, make_order(problem, policy), times,
                             fmt::format("{} lanes, {} micro-batches, limit {}, rule {}", lanes,
                                         micro_batches, limit, number));
          }
          return true;
        });
      }
    }
  }
}

TEST(ZbAutoSearch, KnownOrdersFitTheLimit) {
  for (const PassTimes& times : kTimes) {
    for (const int lanes : {1, 2, 5}) {
      for (const int micro_batches : {1, 4, 11}) {
        for (const int limit : {1, 2, 4, 5, 8, 9, 20}) {
          const Problem problem = make_problem(lanes, micro_batches, limit, times);
          for (const Known known : {Known::one_f_one_b, Known::zb_h1, Known::zb_h2}) {
            Order order = known_order(problem, known);
            Timetable table(problem);
            ASSERT_TRUE(table.fill(order));
            const Score score = table.score(order);
            expect_as_scored(problem, {std::move(order), score}, times, "known");
          }
        }
      }
    }
  }
}

TEST(ZbAutoSearch, TheBoundByHand) {
  const auto least = [](int lanes, int micro_batches, int limit, const PassTimes& times) {
    const Problem problem = make_problem(lanes, micro_batches, limit, times);
    const auto second = static_cast<double>(problem.forward) / times.forward_s;
    return std::pair{static_cast<double>(least_cost(problem)) / second,
                     static_cast<double>(least_makespan(problem)) / second};
  };
  const PassTimes short_weights = {8, 4, 4, 1}, short_forwards = {4, 4, 8, 1};
  using Pair = std::pair<double, double>;
  // Work 16 m, a round of 3 * 14 = 42 filled with 6 W: 96 + 42 - 5 * 4.
  EXPECT_EQ(least(4, 6, 6, short_weights), Pair(118, 123));
  // A round of 3 * 10 = 30 filled with 6 F.
  EXPECT_EQ(least(4, 6, 6, short_forwards), Pair(106, 111));
  // 4 of 6 fit: the last two F wait, 58 + 16 + 58.
  EXPECT_EQ(least(4, 6, 4, short_weights), Pair(132, 132));
  // One after the other.
  EXPECT_EQ(least(4, 6, 1, short_weights), Pair(6 * 58, 6 * 58));
}

TEST(ZbAutoSearch, ImprovingNeverMakesWorseAndOftenBetter) {
  int better = 0;
  for (const PassTimes& times : kTimes) {
    for (const int limit : {2, 4, 6, 8}) {
      const Problem problem = make_problem(4, 9, limit, times);
      Order order = known_order(problem, Known::one_f_one_b);
      Timetable table(problem);
      ASSERT_TRUE(table.fill(order));
      const Score before = table.score(order);
      const Made after = improve_order(problem, {std::move(order), before}, 2000);
      expect_as_scored(problem, after, times, "improved");
      EXPECT_LE(after.score, before);
      better += after.score.cost < before.cost;
    }
  }
  EXPECT_GE(better, 12);
}

TEST(ZbAutoSearch, AnOrderThatCannotRunIsNoticed) {
  const Problem problem = make_problem(2, 1, 1, {});
  using enum Pass;
  EXPECT_TRUE(Timetable(problem).fill({{forward, input, weight}, {forward, input, weight}}));
  EXPECT_FALSE(Timetable(problem).fill({{input, forward, weight}, {forward, input, weight}}));
  EXPECT_FALSE(Timetable(problem).fill({{forward, weight, input}, {forward, input, weight}}));
  EXPECT_FALSE(Timetable(problem).fill({{forward, input, weight}, {input, forward, weight}}));
}

}  // namespace
}  // namespace troika::zb_auto

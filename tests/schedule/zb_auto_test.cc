// zb-auto: valid and within its memory for any numbers; never worse than the hand-made orders; best possible
// where all orders can be tried, and at the bound for the sizes that people use. Costs come from the
// simulation in pass_run.h.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "schedule/pass_run.h"
#include "support/error_of.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

constexpr PassTimes kUnit = {};
constexpr PassTimes kLight = {18.522, 18.086, 9.337, 0.601};  // Qi et al., 2024, Table 5: 1.5B, p = 8, m = 24
constexpr PassTimes kHeavy = {11.347, 11.248, 8.132, 0.377};  // 14.6B, p = 16, m = 48
constexpr PassTimes kSlowWeights = {10, 11, 14, 0.5};
constexpr PassTimes kSlowLink = {10, 10, 8, 3};
constexpr PassTimes kAllTimes[] = {kUnit,     kLight,       kHeavy,      kSlowWeights,
                                   kSlowLink, {0, 2, 1, 0}, {1, 2, 0, 1}};

ScheduleRequest request_of(int lanes, int micro_batches, double limit, const PassTimes& times = kUnit) {
  return {.lanes = lanes, .micro_batches = micro_batches, .times = times, .memory_limit = limit};
}

PassRun run_zb_auto(const ScheduleRequest& request) {
  const Schedule schedule = make_schedule("zb-auto", request);
  const PassRun run = run_passes(schedule, request.times);
  EXPECT_EQ(run.wrong, "") << describe(request);
  EXPECT_LE(run.peak_held, request.memory_limit.value_or(request.lanes)) << describe(request);
  return run;
}

TEST(ZbAuto, RunsWithinItsMemory) {
  for (const PassTimes& times : kAllTimes) {
    for (const int lanes : {1, 2, 3, 8}) {
      for (const int micro_batches : {1, 2, 7}) {
        for (const int limit : {1, 2, lanes, 2 * lanes}) {
          if (limit > 2 && &times != &kAllTimes[1] && lanes > 3) continue;
          run_zb_auto(request_of(lanes, micro_batches, limit, times));
        }
      }
    }
  }
}

TEST(ZbAuto, IsNeverWorseThanTheHandMadeOrders) {
  for (const PassTimes& times : kAllTimes) {
    for (const int lanes : {2, 3, 5}) {
      for (const int micro_batches : {3, lanes, 2 * lanes + 1}) {
        for (const int limit : {lanes, lanes + 1, 2 * lanes - 1, 2 * lanes}) {
          const ScheduleRequest request = request_of(lanes, micro_batches, limit, times);
          const double cost = run_zb_auto(request).cost;
          for (const int steps : {0, 1, 2}) {  // 1f1b, zb-h1, zb-h2
            const auto warm_up = [&](int stage) { return std::max(1, steps) * (lanes - 1 - stage); };
            const auto lag = [&](int stage) { return steps * stage; };
            const PassRun known = run_passes(hand_made(lanes, micro_batches, warm_up, lag), times);
            ASSERT_EQ(known.wrong, "");
            if (known.peak_held > limit) continue;
            EXPECT_LE(cost, known.cost * (1 + 1e-9)) << describe(request) << ", order " << steps;
          }
        }
      }
    }
  }
}

// Calls `use` with every order of F, I and W of `count` micro-batches.
void for_each_lane(int count, Lane& lane, int forwards, int inputs, int weights,
                   const std::function<void(const Lane&)>& use) {
  if (weights == count) return use(lane);
  const auto go = [&](Op op, int& next) {
    lane.push_back({op, 0, next++});
    for_each_lane(count, lane, forwards, inputs, weights, use);
    --next;
    lane.pop_back();
  };
  if (forwards < count) go(Op::forward, forwards);
  if (inputs < forwards) go(Op::backward_input, inputs);
  if (weights < inputs) go(Op::backward_weight, weights);
}

// The best (cost, makespan) of all orders within the limit.
std::pair<double, double> best_of_all(const ScheduleRequest& request) {
  std::vector<Lane> lanes;
  Lane lane;
  for_each_lane(request.micro_batches, lane, 0, 0, 0, [&](const Lane& each) { lanes.push_back(each); });
  std::pair<double, double> best = {HUGE_VAL, HUGE_VAL};
  Schedule schedule = hand_made(
      request.lanes, request.micro_batches, [](int) { return 0; }, [](int) { return 0; });
  const std::function<void(int)> fill = [&](int stage) {
    if (stage == request.lanes) {
      const PassRun run = run_passes(schedule, request.times);
      if (run.wrong.empty()) best = std::min(best, {run.cost, run.makespan});
      return;
    }
    for (const Lane& each : lanes) {
      Lane& mine = schedule.lanes[static_cast<size_t>(stage)] = each;
      for (Action& action : mine) action.stage = stage;
      if (lane_peak_held(mine) <= *request.memory_limit) fill(stage + 1);
    }
  };
  fill(0);
  return best;
}

TEST(ZbAuto, IsTheBestOfAllOrdersWhereTheyCanBeTried) {
  for (const PassTimes& times : kAllTimes) {
    for (const auto& [lanes, micro_batches] : {std::pair{2, 2}, {2, 3}, {3, 2}, {4, 2}}) {
      for (int limit = 1; limit <= micro_batches; ++limit) {
        const ScheduleRequest request = request_of(lanes, micro_batches, limit, times);
        const auto [cost, makespan] = best_of_all(request);
        const PassRun run = run_zb_auto(request);
        EXPECT_NEAR(run.cost, cost, 1e-9 * cost) << describe(request);
        EXPECT_NEAR(run.makespan, makespan, 1e-9 * makespan) << describe(request);
      }
    }
  }
}

// What no order can beat with memory for `limit`: the first lane waits for its first I, and the last lane's
// last gradient travels to the first, with no more than `limit` F or W to fill the time; with more
// micro-batches than that, the first lane's F also wait for W, at least one round for every `limit` of them.
double bound(const ScheduleRequest& request) {
  const PassTimes& times = request.times;
  const int limit = static_cast<int>(*request.memory_limit), last = request.micro_batches - 1;
  const double each = times.forward_s + times.input_s + times.weight_s;
  const double round = (request.lanes - 1) * (times.forward_s + times.input_s + 2 * times.message_s);
  const double least =
      (last + 1) * each + std::max(0.0, round - (limit - 1) * std::min(times.forward_s, times.weight_s));
  if (last < limit) return least;
  return std::max({least, (last - limit + 2) * each + 2 * round,
                   (last / limit + 1) * (round + each) + (last % limit) * each});
}

TEST(ZbAuto, ReachesTheBoundWithOneAndAHalfTimesTheMemoryOf1f1b) {
  for (const PassTimes& times : {kUnit, kLight, kHeavy, kSlowWeights, kSlowLink}) {
    for (const int lanes : {4, 8, 16}) {
      for (const int limit : {lanes, lanes + lanes / 2}) {
        const ScheduleRequest request = request_of(lanes, 3 * lanes, limit, times);
        const double least = bound(request);
        EXPECT_NEAR(run_zb_auto(request).cost, least, 1e-9 * least) << describe(request);
      }
    }
  }
}

// What a rule alone doesn't reach.
TEST(ZbAuto, ReachesTheBoundWithTwiceTheMemoryOf1f1b) {
  for (const auto& [lanes, micro_batches, times] :
       {std::tuple{8, 24, kLight}, {4, 8, kHeavy}, {8, 24, kHeavy}, {16, 48, kHeavy}}) {
    const ScheduleRequest request = request_of(lanes, micro_batches, 2 * lanes, times);
    EXPECT_LE(run_zb_auto(request).cost, 1.0002 * bound(request)) << describe(request);
  }
}

TEST(ZbAuto, HasNoBubbleWithUnitTimesAndMemoryForTwoPMinusOne) {
  for (const int lanes : {1, 2, 4, 8, 16}) {
    for (const int limit : {2 * lanes - 1, 2 * lanes}) {
      const int micro_batches = 2 * lanes + 3;
      EXPECT_DOUBLE_EQ(run_zb_auto(request_of(lanes, micro_batches, limit)).cost, 3 * micro_batches);
    }
  }
  // 1.5B needs more, because its W is short: (p - 1) (F + I + 2c) / W + 1.
  EXPECT_LE(run_zb_auto(request_of(8, 32, 32, kLight)).cost, 1.002 * 32 * (18.522 + 18.086 + 9.337));
}

TEST(ZbAuto, CostsAsPinned) {
  const auto cost = [](double limit) { return run_zb_auto(request_of(4, 6, limit)).cost; };
  EXPECT_DOUBLE_EQ(cost(1), 6 * 9);  // one at a time
  EXPECT_DOUBLE_EQ(cost(2), 31);
  EXPECT_DOUBLE_EQ(cost(3), 24);
  EXPECT_DOUBLE_EQ(cost(4), 21);
  EXPECT_DOUBLE_EQ(cost(5), 20);
  EXPECT_DOUBLE_EQ(cost(6), 19);
  EXPECT_DOUBLE_EQ(cost(100), 19);
  EXPECT_DOUBLE_EQ(cost(4.99), 21);
}

TEST(ZbAuto, LittleMemoryCostsTimeNotMoreThanNeeded) {
  for (const PassTimes& times : {kUnit, kHeavy}) {
    const double alone = run_zb_auto(request_of(8, 16, 1, times)).cost;
    const double latency = 8 * (times.forward_s + times.input_s) + 14 * times.message_s + times.weight_s;
    EXPECT_NEAR(alone, 16 * latency, 1e-9 * alone);
    double before = alone;
    for (const int limit : {2, 4, 6}) {
      const ScheduleRequest request = request_of(8, 16, limit, times);
      const double cost = run_zb_auto(request).cost;
      EXPECT_LT(cost, before) << limit;
      EXPECT_LT(cost, 1.06 * bound(request)) << limit;
      before = cost;
    }
  }
}

TEST(ZbAuto, TakesNoMoreMemoryThanItGains) {
  // The cost of 19 needs 6; of the orders with it, one with the least memory is taken.
  EXPECT_EQ(run_zb_auto(request_of(4, 6, 100)).peak_held, 6);
  EXPECT_EQ(run_zb_auto(request_of(1, 9, 100)).peak_held, 1);
}

TEST(ZbAuto, OnlyRatiosOfTheTimesCountAndNothingElse) {
  const ScheduleRequest request = request_of(4, 9, 3, kHeavy);
  const Schedule schedule = make_schedule("zb-auto", request);
  EXPECT_EQ(make_schedule("zb-auto", request), schedule);
  ScheduleRequest in_other_units = request;
  for (double* time : {&in_other_units.times.forward_s, &in_other_units.times.input_s,
                       &in_other_units.times.weight_s, &in_other_units.times.message_s}) {
    *time /= 1024;
  }
  EXPECT_EQ(make_schedule("zb-auto", in_other_units), schedule);
}

TEST(ZbAuto, TheDefaultIsTheMemoryOf1f1b) {
  const ScheduleRequest request = {.lanes = 4, .micro_batches = 9, .times = kHeavy};
  EXPECT_EQ(make_schedule("zb-auto", request), make_schedule("zb-auto", request_of(4, 9, 4, kHeavy)));
}

TEST(ZbAuto, ZeroTimes) {
  for (const PassTimes& times :
       {PassTimes{0, 0, 0, 0}, PassTimes{0, 0, 0, 1}, PassTimes{1, 0, 0, 0}, PassTimes{0, 1, 0, 0},
        PassTimes{0, 0, 1, 0}, PassTimes{1e-300, 0, 1e300, 0}}) {
    for (const int limit : {1, 2, 3, 5}) run_zb_auto(request_of(3, 5, limit, times));
  }
  EXPECT_DOUBLE_EQ(run_zb_auto(request_of(3, 5, 5, {0, 0, 1, 0})).cost, 5);
}

TEST(ZbAuto, RefusesMemoryForLessThanOneMicroBatch) {
  for (const double limit : {0.99, 0.0, -1.0, std::nan("")}) {
    EXPECT_THROW(make_schedule("zb-auto", request_of(4, 6, limit)), UsageError) << limit;
  }
  EXPECT_EQ(error_of([] { make_schedule("zb-auto", request_of(4, 6, 0.5)); }),
            "memory limit: expected 1 or more, got 0.5: zb-auto works from 1 micro-batch per lane on, and "
            "reaches 1f1b's speed from 4 on");
}

TEST(ZbAuto, RandomNumbers) {
  std::mt19937 random(20240110);
  const auto below = [&](unsigned count) { return static_cast<int>(random() % count); };
  const auto time = [&] { return below(4) == 0 ? below(3) : below(1000) / 100.0; };
  for (int round = 0; round < 25; ++round) {
    const int lanes = 1 + below(9);
    const int micro_batches = 1 + below(20);
    const double limit = 1 + below(2 * static_cast<unsigned>(lanes) * 4) / 4.0;
    const ScheduleRequest request =
        request_of(lanes, micro_batches, limit, {time(), time(), time(), time() / 10});
    const Schedule schedule = make_schedule("zb-auto", request);
    const PassRun run = run_passes(schedule, request.times);
    ASSERT_EQ(run.wrong, "") << describe(request);
    EXPECT_LE(run.peak_held, limit) << describe(request);
    const Verdict verdict = validate(schedule, {.memory_limit = limit});
    EXPECT_TRUE(verdict.valid()) << describe(request);
    // One micro-batch after the other, and two in turn, are always possible.
    for (const int ahead : {0, 1}) {
      if (ahead + 1 > limit) continue;
      const auto warm_up = [&](int stage) { return std::min(ahead, lanes - 1 - stage); };
      const PassRun known =
          run_passes(hand_made(lanes, micro_batches, warm_up, [](int) { return 0; }), request.times);
      EXPECT_LE(run.cost, known.cost * (1 + 1e-9)) << describe(request);
    }
  }
}

TEST(ZbAuto, ManyLanesAndMicroBatches) {
  EXPECT_EQ(run_passes(make_schedule("zb-auto", request_of(40, 100, 50, kHeavy)), kHeavy).wrong, "");
}

}  // namespace
}  // namespace troika

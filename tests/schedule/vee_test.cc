// zb-v, v-half and v-min: as good as published, within their memory, in an order that can run. What is timed
// and counted here is on purpose not the simulator's or the validator's.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "schedule/pass_run.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

constexpr std::array kNames = {"zb-v", "v-half", "v-min"};

PassRun run_of(std::string_view name, int lanes, int micro_batches, const PassTimes& times) {
  return run_passes(make_schedule(name, {.lanes = lanes, .micro_batches = micro_batches, .times = times}),
                    times);
}

double rate(const PassRun& run, int micro_batches, const PassTimes& times) {
  const double work = 2 * micro_batches * (times.forward_s + times.input_s + times.weight_s);
  return (run.cost - work) / run.cost;
}

// The published schedulers' peaks, in chunks.
int published_held(std::string_view name, int lanes) {
  if (name == "zb-v") return 2 * lanes;
  if (name == "v-half") return 2 * (lanes / 2) + 2;
  const std::map<int, int> listed = {{1, 2}, {2, 4}, {3, 4},   {4, 4},  {5, 6},
                                     {6, 6}, {8, 8}, {12, 10}, {16, 12}};
  return listed.lower_bound(lanes)->second;
}

std::string where(std::string_view name, int lanes, int micro_batches) {
  return std::string(name) + " " + std::to_string(lanes) + " x " + std::to_string(micro_batches);
}

// Qi et al., 2024, arXiv:2401.10241 (zb-v) and arXiv:2405.15362 (v-half, v-min): what their schedulers reach.
TEST(Vee, IsNoWorseThanPublished) {
  struct Cell {
    int lanes, micro_batches;
    PassTimes times;
    std::array<double, 3> rates;  // of kNames; 1: not published
  };
  const PassTimes even = {1000, 1000, 1000, 0}, measured = {4959, 5217, 3519, 213};
  for (const Cell& cell : {Cell{4, 8, even, {0.0000, 0.0943, 0.1864}},       //
                           Cell{8, 32, even, {0.0000, 0.0813, 0.1233}},      //
                           Cell{8, 24, measured, {0.0447, 0.1456, 0.2822}},  //
                           Cell{4, 12, {5000, 6000, 4000, 0}, {0.0217, 1, 1}}}) {
    for (size_t i = 0; i < kNames.size(); ++i) {
      SCOPED_TRACE(where(kNames[i], cell.lanes, cell.micro_batches));
      const PassRun run = run_of(kNames[i], cell.lanes, cell.micro_batches, cell.times);
      EXPECT_EQ(run.wrong, "");
      EXPECT_LE(rate(run, cell.micro_batches, cell.times), cell.rates[i] + 0.00005);
      EXPECT_LE(run.peak_held, published_held(kNames[i], cell.lanes));
    }
  }
}

TEST(Vee, CanRunWithinItsMemoryForEveryNumberOfLanesAndMicroBatches) {
  for (const char* name : kNames) {
    for (int lanes = 1; lanes <= 16; ++lanes) {
      for (const int micro_batches : {1, 2, 3, 5, 8, 13, 21, 32}) {
        SCOPED_TRACE(where(name, lanes, micro_batches));
        const Schedule schedule = make_schedule(name, {.lanes = lanes, .micro_batches = micro_batches});
        const PassRun run = run_passes(schedule, {});
        ASSERT_EQ(run.wrong, "");
        const int most = std::min(published_held(name, lanes), 2 * micro_batches);
        ASSERT_LE(run.peak_held, most);
        ASSERT_TRUE(validate(schedule, {.memory_limit = most / 2.0}).valid());
        ASSERT_EQ(schedule.lane_of_stage, vee_layout(lanes));
      }
    }
  }
}

TEST(Vee, ZbVHasNoGapWithEvenTimesFromTwoPMinusOneMicroBatches) {
  for (int lanes = 1; lanes <= 16; ++lanes) {
    for (const int micro_batches : {2 * lanes - 1, 2 * lanes, 3 * lanes + 1}) {
      SCOPED_TRACE(where("zb-v", lanes, micro_batches));
      EXPECT_EQ(run_of("zb-v", lanes, micro_batches, {}).cost, 6 * micro_batches);
    }
  }
}

// Their makers differ in memory only: each must use what it has.
TEST(Vee, MoreMemoryIsASmallerBubble) {
  for (const PassTimes& times : {PassTimes{}, PassTimes{2, 3, 1, 0.25}}) {
    const PassRun zero = run_of("zb-v", 8, 24, times), half = run_of("v-half", 8, 24, times),
                  least = run_of("v-min", 8, 24, times);
    EXPECT_LT(zero.cost, half.cost);
    EXPECT_LT(half.cost, least.cost);
    EXPECT_GT(zero.peak_held, half.peak_held);
    EXPECT_GT(half.peak_held, least.peak_held);
  }
}

TEST(Vee, TheSameNumbersGiveTheSameSchedule) {
  for (const char* name : kNames) {
    ScheduleRequest request = {.lanes = 5, .micro_batches = 9, .times = {5, 6, 4, 0.3}};
    const Schedule schedule = make_schedule(name, request);
    EXPECT_EQ(schedule, make_schedule(name, request));
    request.times = {0.005, 0.006, 0.004, 0.0003};  // only ratios count
    EXPECT_EQ(schedule, make_schedule(name, request));
  }
}

TEST(Vee, TimesMayBeNothingAndFarApart) {
  const std::vector<PassTimes> all = {{0, 0, 0, 0},    {0, 0, 0, 1},     {0, 1, 1, 0},       {1, 0, 1, 0},
                                      {1, 1, 0, 0},    {0, 0, 1, 0.5},   {1, 0, 0, 0},       {1, 1, 1, 50},
                                      {1e-9, 1, 1, 0}, {1, 1, 1, 1e300}, {3e-7, 2e3, 1, 0.1}};
  for (const char* name : kNames) {
    for (const PassTimes& times : all) {
      for (const int lanes : {1, 3, 4}) {
        SCOPED_TRACE(where(name, lanes, 5) + " " + std::to_string(times.forward_s) + " " +
                     std::to_string(times.input_s) + " " + std::to_string(times.weight_s) + " " +
                     std::to_string(times.message_s));
        const PassRun run = run_of(name, lanes, 5, times);
        EXPECT_EQ(run.wrong, "");
        EXPECT_LE(run.peak_held, published_held(name, lanes));
      }
    }
  }
}

TEST(Vee, WithoutTimesAllPassesCountTheSame) {
  for (const char* name : kNames) {
    ScheduleRequest request = {.lanes = 4, .micro_batches = 7};
    const Schedule even = make_schedule(name, request);
    request.times = {0, 0, 0, 0};
    EXPECT_EQ(make_schedule(name, request), even) << name;
  }
}

TEST(Vee, KeepsALowerMemoryLimit) {
  for (const char* name : kNames) {
    for (const double limit : {1.0, 1.5, 2.0, 3.7}) {
      const Schedule schedule = make_schedule(name, {.lanes = 6, .micro_batches = 12, .memory_limit = limit});
      const PassRun run = run_passes(schedule, {});
      EXPECT_EQ(run.wrong, "");
      EXPECT_LE(run.peak_held, 2 * limit) << name;
    }
    // Less than one micro-batch is not to be had.
    EXPECT_EQ(
        run_passes(make_schedule(name, {.lanes = 6, .micro_batches = 12, .memory_limit = 0.5}), {}).wrong,
        "");
  }
}

// A lane that waits for its own order, for gradients of later micro-batches or for messages would cost this.
TEST(Vee, MessagesBetweenLanesCostLittle) {
  for (const char* name : kNames) {
    const double without = run_of(name, 6, 24, {10, 10, 10, 0}).cost,
                 with = run_of(name, 6, 24, {10, 10, 10, 1}).cost;
    EXPECT_LT(with, 1.06 * without) << name;
  }
}

}  // namespace
}  // namespace troika

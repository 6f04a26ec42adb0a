#include "troika/simulate/simulate.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/error_of.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_text.h"

namespace troika {
namespace {

Schedule read(std::string_view text) { return parse_schedule(text, "here"); }

// One lane as people write it: "0F0 0-1, 0B0 5-7".
std::string times_of(const Trace& trace, int lane) {
  std::string text;
  for (const Span& span : trace.spans) {
    if (span.rank != lane) continue;
    text +=
        fmt::format("{}{} {}-{}", text.empty() ? "" : ", ", to_string(span.action), span.start_s, span.end_s);
  }
  return text;
}

constexpr std::string_view kTwoByTwo =
    "0F0 0F1 0B0 0B1\n"
    "1F0 1B0 1F1 1B1\n";

TEST(Simulate, ALaneWaitsForWhatItNeedsFromTheOther) {
  const Trace trace = simulate(read(kTwoByTwo), CostModel::uniform(2, {}));
  EXPECT_EQ(trace.ranks, 2);
  EXPECT_EQ(times_of(trace, 0), "0F0 0-1, 0F1 1-2, 0B0 4-6, 0B1 7-9");
  EXPECT_EQ(times_of(trace, 1), "1F0 1-2, 1B0 2-4, 1F1 4-5, 1B1 5-7");
}

TEST(Simulate, AMessageDelaysItsReceiverAndOccupiesNobody) {
  const CostModel costs = CostModel::uniform(2, {}, {.latency_s = 0.5});
  const Trace trace = simulate(read(kTwoByTwo), costs);
  EXPECT_EQ(times_of(trace, 0), "0F0 0-1, 0F1 1-2, 0B0 5-7, 0B1 8-10");
  EXPECT_EQ(times_of(trace, 1), "1F0 1.5-2.5, 1B0 2.5-4.5, 1F1 4.5-5.5, 1B1 5.5-7.5");
}

TEST(Simulate, StatedMessagesTakeTheSameTime) {
  const CostModel costs = CostModel::uniform(2, {}, {.latency_s = 0.5});
  const Trace trace = simulate(read("0F0 0SF0>1 0F1 0SF1>1 0RG0<1 0B0 0RG1<1 0B1\n"
                                    "1RF0<0 1F0 1B0 1SG0>0 1RF1<0 1F1 1B1 1SG1>0\n"),
                               costs);
  EXPECT_EQ(times_of(trace, 0),
            "0F0 0-1, 0SF0>1 1-1, 0F1 1-2, 0SF1>1 2-2, 0RG0<1 5-5, 0B0 5-7, 0RG1<1 8-8, 0B1 8-10");
  EXPECT_EQ(times_of(trace, 1),
            "1RF0<0 1.5-1.5, 1F0 1.5-2.5, 1B0 2.5-4.5, 1SG0>0 4.5-4.5, "
            "1RF1<0 4.5-4.5, 1F1 4.5-5.5, 1B1 5.5-7.5, 1SG1>0 7.5-7.5");
}

TEST(Simulate, TheGradientOfASplitBackwardLeavesBeforeTheWeightPart) {
  const Trace trace = simulate(read("0F0 0I0 0W0\n1F0 1I0 1W0\n"),
                               CostModel::uniform(2, {.forward_s = 1, .input_s = 2, .weight_s = 4}));
  EXPECT_EQ(times_of(trace, 0), "0F0 0-1, 0I0 4-6, 0W0 6-10");
  EXPECT_EQ(times_of(trace, 1), "1F0 1-2, 1I0 2-4, 1W0 4-8");
}

// Down two lanes and up again: stages 1 and 2 are in one lane.
TEST(Simulate, WithinALaneThereIsNoMessage) {
  const Trace trace =
      simulate(read("0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n"), CostModel::uniform(4, {}, {.latency_s = 10}));
  EXPECT_EQ(times_of(trace, 0), "0F0 0-1, 3F0 23-24, 3B0 24-26, 0B0 50-52");
  EXPECT_EQ(times_of(trace, 1), "1F0 11-12, 2F0 12-13, 2B0 36-38, 1B0 38-40");
}

// 0 -> 1 -> 2 and 0 -> 2. Bytes are those of the edge's earlier stage, for the gradient too.
TEST(Simulate, BytesAreOfTheEarlierStageAndLinksOfTheDirection) {
  CostModel costs = CostModel::uniform(3, {}, {.latency_s = 0.5, .seconds_per_byte = 1});
  costs.stages[0].output_bytes = 8;
  costs.stages[1].output_bytes = 2;
  costs.stages[2].output_bytes = 100;
  costs.links[{0, 2}] = {.latency_s = 20};
  costs.links[{2, 0}] = {.latency_s = 40};
  const Trace trace = simulate(read("# edges=0>1,0>2,1>2\n0F0 0B0\n1F0 1B0\n2F0 2B0\n"), costs);
  EXPECT_EQ(times_of(trace, 1), "1F0 9.5-10.5, 1B0 26.5-28.5");
  EXPECT_EQ(times_of(trace, 2), "2F0 21-22, 2B0 22-24");
  EXPECT_EQ(times_of(trace, 0), "0F0 0-1, 0B0 64-66");
}

TEST(Simulate, WhatIsNoPassTakesItsTimeToo) {
  const CostModel costs =
      CostModel::uniform(1, {.forward_s = 2, .backward_s = 7, .load_s = 1, .reduce_s = 16, .update_s = 32});
  EXPECT_EQ(times_of(simulate(read("# recompute=0\n0L0 0F0 0C0 0B0 0R 0O\n"), costs), 0),
            "0L0 0-1, 0F0 1-3, 0C0 3-5, 0B0 5-12, 0R 12-28, 0O 28-60");
}

TEST(Simulate, WhatCannotRunIsNamed) {
  const CostModel two = CostModel::uniform(2, {});
  EXPECT_EQ(error_of([&] { simulate(read("0F0 0B0 0F1 0B1\n1F1 1F0 1B0 1B1\n"), two); }),
            "this schedule can't run: lane 0 would wait forever at step 1, where 0B0 needs 1B0 (`troika "
            "schedule check` says more)");
  EXPECT_EQ(error_of([&] { simulate(read(kTwoByTwo), CostModel::uniform(3, {})); }),
            "a schedule of 2 stages needs the costs of as many, got those of 3");
  Schedule wide = read(kTwoByTwo);
  wide.num_micro_batches = 1'000'000;
  EXPECT_EQ(error_of([&] { simulate(wide, two); }),
            "this schedule can't be simulated: its numbers of stages, micro-batches and edges don't fit what "
            "stands in its lanes (`troika schedule check` says more)");
  Schedule foreign = read(kTwoByTwo);
  foreign.lanes[1].push_back({Op::forward, 7, 0});
  EXPECT_EQ(
      error_of([&] { simulate(foreign, two); }),
      "this schedule can't be simulated: 7F0 in lane 1, step 4, names a stage, micro-batch or edge that "
      "it doesn't have");
}

TEST(Simulate, TimesThatAreNoneAreNamed) {
  const auto error = [](const StageCost& cost, const Link& link = {}) {
    CostModel costs = CostModel::uniform(2, {}, link);
    costs.stages[1] = cost;
    return error_of([&] { simulate(read(kTwoByTwo), costs); });
  };
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(error({.forward_s = -1}), "costs of stage 1: expected seconds of a forward of 0 or more, got -1");
  EXPECT_EQ(error({.input_s = -1}),
            "costs of stage 1: expected seconds of the backward's input part of 0 or more, got -1");
  EXPECT_EQ(error({.weight_s = infinite}),
            "costs of stage 1: expected seconds of the backward's weight part of 0 or more, got inf");
  EXPECT_EQ(error({.backward_s = std::numeric_limits<double>::quiet_NaN()}),
            "costs of stage 1: expected seconds of a backward of 0 or more, got nan");
  EXPECT_EQ(error({.load_s = -2}), "costs of stage 1: expected seconds of a load of 0 or more, got -2");
  EXPECT_EQ(error({.reduce_s = -2}),
            "costs of stage 1: expected seconds of a reduction of 0 or more, got -2");
  EXPECT_EQ(error({.update_s = -2}), "costs of stage 1: expected seconds of an update of 0 or more, got -2");
  EXPECT_EQ(error({.output_bytes = -8}), "costs of stage 1: expected bytes of output of 0 or more, got -8");
  EXPECT_EQ(error({}, {.latency_s = -1}), "costs of a message: expected a latency of 0 or more, got -1");
  EXPECT_EQ(error({}, {.seconds_per_byte = -1}),
            "costs of a message: expected seconds per byte of 0 or more, got -1");
  EXPECT_EQ(error({.forward_s = std::numeric_limits<double>::max()}),
            "the times of this schedule add up to more than a number holds");
  CostModel costs = CostModel::uniform(2, {});
  costs.links[{1, 0}] = {.latency_s = -1};
  EXPECT_EQ(error_of([&] { simulate(read(kTwoByTwo), costs); }),
            "costs of a message from lane 1 to lane 0: expected a latency of 0 or more, got -1");
}

Summary summary_of(std::string_view name, int lanes, int micro_batches, const StageCost& cost = {}) {
  const Schedule schedule = make_schedule(name, {.lanes = lanes, .micro_batches = micro_batches});
  return summarize(schedule, simulate(schedule, CostModel::uniform(schedule.num_stages(), cost)));
}

TEST(Summary, OneForwardOneBackward) {
  const Summary summary = summary_of("1f1b", 4, 8);
  EXPECT_EQ(summary.makespan_s, 33);
  EXPECT_EQ(summary.cost_s, 33);
  EXPECT_DOUBLE_EQ(summary.bubble_rate, 3.0 / 11);  // 27.3 %
  EXPECT_DOUBLE_EQ(summary.bubble_rate_makespan, 3.0 / 11);
  EXPECT_EQ(summary.utilization, std::vector<double>(4, 24.0 / 33));
  EXPECT_EQ(summary.messages, 3 * 8 * 2);
  ASSERT_EQ(summary.peaks.size(), 4u);
  EXPECT_EQ(summary.peaks[0].held, 4);
  EXPECT_EQ(summary.peaks[3].held, 1);
}

TEST(Summary, ZeroBubbleSchedulesReachTheirCostOnlyWhereStepsOverlap) {
  const Summary h1 = summary_of("zb-h1", 4, 8);
  EXPECT_EQ(h1.cost_s, 27);
  EXPECT_DOUBLE_EQ(h1.bubble_rate, 1.0 / 9);  // 11.1 %
  const Summary h2 = summary_of("zb-h2", 4, 8);
  EXPECT_EQ(h2.cost_s, 24);
  EXPECT_EQ(h2.makespan_s, 27);
  EXPECT_EQ(h2.bubble_rate, 0);
  EXPECT_DOUBLE_EQ(h2.bubble_rate_makespan, 1.0 / 9);
}

// Loads before the first pass and updates after the last are no part of the cost.
TEST(Summary, TheCostIsFromTheFirstPassToTheEndOfTheLast) {
  const Schedule schedule = read("0L0 0F0 0B0 0O\n1L0 1F0 1B0 1O\n");
  const Trace trace = simulate(schedule, CostModel::uniform(2, {.load_s = 5, .update_s = 3}));
  EXPECT_EQ(times_of(trace, 0), "0L0 0-5, 0F0 5-6, 0B0 9-11, 0O 11-14");
  EXPECT_EQ(times_of(trace, 1), "1L0 0-5, 1F0 6-7, 1B0 7-9, 1O 9-12");
  const Summary summary = summarize(schedule, trace);
  EXPECT_EQ(summary.makespan_s, 14);
  EXPECT_EQ(summary.cost_s, 6);
  EXPECT_EQ(summary.bubble_rate, 0.5);
  EXPECT_DOUBLE_EQ(summary.bubble_rate_makespan, 3.0 / 14);
  EXPECT_EQ(summary.utilization, (std::vector<double>{11.0 / 14, 11.0 / 14}));
}

// Others that stand between two passes are.
TEST(Summary, ALaneIsBusyWithAnUpdateBetweenItsPasses) {
  const Schedule schedule = read("# updates=2\n0F0 0B0 0R 0O 0F1 0B1 0R 0O\n");
  const Summary summary =
      summarize(schedule, simulate(schedule, CostModel::uniform(1, {.reduce_s = 4, .update_s = 2})));
  EXPECT_EQ(summary.makespan_s, 18);
  EXPECT_EQ(summary.cost_s, 12);
  EXPECT_EQ(summary.bubble_rate, 0);
}

TEST(Summary, RoundingLeavesNoRateBelowNothing) {
  const Schedule schedule = make_schedule("1f1b", {.lanes = 1, .micro_batches = 9});
  for (int tenths = 1; tenths < 30; ++tenths) {
    Trace trace = simulate(schedule, CostModel::uniform(1, {.forward_s = 0.1 * tenths, .input_s = 0.7}));
    for (Span& span : trace.spans) span.start_s += 0.3, span.end_s += 0.3;
    EXPECT_GE(summarize(schedule, trace).bubble_rate, 0);
    EXPECT_LT(summarize(schedule, trace).bubble_rate, 1e-12);
  }
}

TEST(Summary, IdleTimeWithinTheSpanIsTheBubble) {
  const Schedule schedule = read(kTwoByTwo);
  const Summary summary =
      summarize(schedule, simulate(schedule, CostModel::uniform(2, {}, {.latency_s = 0.5})));
  EXPECT_EQ(summary.makespan_s, 10);
  EXPECT_EQ(summary.cost_s, 10);  // lane 0; lane 1 has 6
  EXPECT_DOUBLE_EQ(summary.bubble_rate, 0.4);
  EXPECT_EQ(summary.utilization, (std::vector<double>{0.6, 0.6}));
}

TEST(Summary, MessagesAreThoseBetweenLanesStatedOrNot) {
  const auto messages = [](const Schedule& schedule) {
    return summarize(schedule, simulate(schedule, CostModel::uniform(schedule.num_stages(), {}))).messages;
  };
  // Edges 0>1 and 2>3 of a V of two lanes and the skip 0>2 cross, 1>2 doesn't.
  const Schedule vee = read("# edges=0>1,0>2,1>2,2>3\n0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n");
  EXPECT_EQ(messages(vee), 3 * 1 * 2);
  EXPECT_EQ(messages(with_messages(vee)), 3 * 1 * 2);
  EXPECT_EQ(messages(forward_only(vee)), 3);
  EXPECT_EQ(messages(make_schedule("interleaved-1f1b", {.lanes = 4, .micro_batches = 8, .chunks = 3})),
            11 * 8 * 2);
}

TEST(Summary, NothingIsDividedByNothing) {
  const Schedule schedule = read(kTwoByTwo);
  const StageCost no_time{.forward_s = 0, .input_s = 0, .weight_s = 0};
  const Summary none = summarize(schedule, simulate(schedule, CostModel::uniform(2, no_time)));
  EXPECT_EQ(none.makespan_s, 0);
  EXPECT_EQ(none.bubble_rate, 0);
  EXPECT_EQ(none.bubble_rate_makespan, 0);
  EXPECT_EQ(none.utilization, (std::vector<double>{0, 0}));
  // An empty lane is an idle one.
  const Schedule half = read("0F0 0B0\n-\n");
  const Summary idle = summarize(half, simulate(half, CostModel::uniform(1, {})));
  EXPECT_EQ(idle.cost_s, 3);
  EXPECT_EQ(idle.bubble_rate, 0.5);
  EXPECT_EQ(idle.utilization, (std::vector<double>{1, 0}));
}

TEST(Summary, SpansOfOtherLanesAreRefused) {
  const Schedule schedule = read(kTwoByTwo);
  EXPECT_EQ(error_of([&] {
              summarize(schedule, {.ranks = 3, .spans = {{2, {Op::forward, 0, 0}, 0, 1}}});
            }),
            "a trace of this schedule has spans of 2 lanes, got one of lane 2");
}

}  // namespace
}  // namespace troika

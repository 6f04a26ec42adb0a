// Bytes over time: cases small enough to add up by hand, and the peaks of liveness.h, which knows no times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/error_of.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_text.h"
#include "troika/simulate/simulate.h"

namespace troika {

void PrintTo(const MemoryLevel& level, std::ostream* out) { *out << level.bytes << " from " << level.at_s; }

namespace {

using Levels = std::vector<MemoryLevel>;

Schedule schedule_of(std::string_view text) { return parse_schedule(text, "here"); }

std::vector<Levels> memory_of(const Schedule& schedule, const StageCost& cost) {
  const CostModel costs = CostModel::uniform(schedule.num_stages(), cost);
  return with_memory(schedule, costs, simulate(schedule, costs)).memory;
}

double peak(const Levels& levels) { return std::ranges::max_element(levels, {}, &MemoryLevel::bytes)->bytes; }

TEST(Memory, AnActivationIsHeldFromItsForwardToItsBackward) {
  const auto memory = memory_of(schedule_of("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"), {.activation_bytes = 10});
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0], (Levels{{0, 10}, {1, 20}, {6, 10}, {9, 0}}));
  // Between the backward's end and the next forward's start there is no time.
  EXPECT_EQ(memory[1], (Levels{{0, 0}, {1, 10}, {7, 0}}));
}

TEST(Memory, ASplitBackwardLeavesWhatItsWeightPartNeeds) {
  const auto memory = memory_of(schedule_of("0F0 0F1 0I0 0I1 0W0 0W1\n"),
                                {.activation_bytes = 10, .weight_pending_bytes = 4});
  EXPECT_EQ(memory[0], (Levels{{0, 10}, {1, 20}, {3, 14}, {4, 8}, {5, 4}, {6, 0}}));
}

TEST(Memory, ARecomputedStageKeepsItsInputUntilItIsComputedAgain) {
  const auto memory = memory_of(schedule_of("# recompute=0\n0F0 0F1 0C0 0B0 0C1 0B1\n"),
                                {.activation_bytes = 10, .kept_input_bytes = 3});
  EXPECT_EQ(memory[0], (Levels{{0, 3}, {1, 6}, {2, 13}, {5, 10}, {8, 0}}));
}

TEST(Memory, AForwardOnlyScheduleHoldsOneActivationAtATime) {
  const auto memory = memory_of(schedule_of("# kind=forward\n0F0 0F1\n1F0 1F1\n"), {.activation_bytes = 10});
  EXPECT_EQ(memory[0], (Levels{{0, 10}, {2, 0}}));
  EXPECT_EQ(memory[1], (Levels{{0, 0}, {1, 10}, {3, 0}}));
}

TEST(Memory, WeightsGradientsAndOptimizerAreAlwaysThere) {
  const StageCost cost{
      .activation_bytes = 1, .weight_bytes = 100, .gradient_bytes = 200, .optimizer_bytes = 400};
  // Two stages in lane 0. An update within a synchronous step changes nothing: the new weights replace the
  // old.
  const auto memory = memory_of(schedule_of("0F0 2F0 2B0 0B0 0O 2O\n1F0 1B0 1O\n"), cost);
  EXPECT_EQ(memory[0].front().bytes, 1401);
  EXPECT_EQ(memory[0].back().bytes, 1400);
  EXPECT_EQ(peak(memory[0]), 1402);
  EXPECT_EQ(memory[1], (Levels{{0, 700}, {1, 701}, {7, 700}}));
}

// Update 0 ends at 5 while the backward of 1 is still to come: its version stays until 8. The one of update 1
// replaces what nobody uses.
TEST(Memory, AnOldVersionStaysUntilItsLastBackward) {
  const auto memory = memory_of(schedule_of("# updates=3 versions=2\n0F0 0F1 0B0 0O 0F2 0B1 0O 0B2 0O\n"),
                                {.update_s = 1, .weight_bytes = 100});
  EXPECT_EQ(memory[0], (Levels{{0, 100}, {5, 200}, {8, 100}, {9, 200}, {11, 100}}));
}

// As validate() counts them: of a split backward until its weight part has ended.
TEST(Memory, AnOldVersionStaysUntilItsLastWeightPart) {
  const auto memory = memory_of(schedule_of("# updates=2 versions=2\n0F0 0F1 0I0 0W0 0O 0I1 0W1 0O\n"),
                                {.update_s = 1, .weight_bytes = 100});
  EXPECT_EQ(memory[0], (Levels{{0, 100}, {5, 200}, {7, 100}}));
}

// What was measured until a run ended early: update 1 never came, so its version neither.
TEST(Memory, ATraceMayEndEarly) {
  const Schedule schedule = schedule_of("# updates=3 versions=2\n0F0 0F1 0B0 0O 0F2 0B1 0O 0B2 0O\n");
  const CostModel costs = CostModel::uniform(1, {.update_s = 1, .activation_bytes = 7, .weight_bytes = 100});
  Trace trace = simulate(schedule, costs);
  trace.spans.resize(5);
  EXPECT_EQ(with_memory(schedule, costs, trace).memory[0], (Levels{{0, 107}, {1, 114}, {4, 107}, {5, 214}}));
}

TEST(Memory, SpansMayComeInAnyOrder) {
  const Schedule schedule = make_schedule("pipedream", {.lanes = 3, .micro_batches = 7});
  const StageCost cost{.update_s = 0.5, .activation_bytes = 8, .weight_bytes = 100};
  const CostModel costs = CostModel::uniform(3, cost);
  const Trace trace = simulate(schedule, costs);
  Trace backwards = trace;
  std::ranges::reverse(backwards.spans);
  backwards.memory = {{{7, 7}}};  // an older one is replaced
  EXPECT_EQ(with_memory(schedule, costs, backwards).memory, with_memory(schedule, costs, trace).memory);
  EXPECT_EQ(with_memory(schedule, costs, trace).spans, trace.spans);
}

TEST(Memory, PeaksAreThoseOfTheOrderAlone) {
  for (const CatalogueEntry& entry : catalogue()) {
    for (const int m : {5, 8, 12}) {
      SCOPED_TRACE(fmt::format("{} m={}", entry.name, m));
      Schedule schedule = make_schedule(entry.name, {.lanes = 5, .micro_batches = m});
      const double chunks = static_cast<double>(schedule.num_stages()) / schedule.num_lanes();
      const auto memory = memory_of(schedule, {.activation_bytes = 1, .weight_pending_bytes = 1});
      const std::vector<LanePeaks> peaks = lane_peaks(schedule);
      for (size_t lane = 0; lane < memory.size(); ++lane) {
        EXPECT_DOUBLE_EQ(peak(memory[lane]) / chunks, peaks[lane].held) << "lane " << lane;
        EXPECT_EQ(memory[lane].back().bytes, 0);
      }
    }
  }
}

TEST(Memory, VersionsAreThoseOfTheOrderAlone) {
  for (const std::string_view name : {"pipedream", "pipedream-2bw", "1f1b"}) {
    SCOPED_TRACE(name);
    const Schedule schedule = with_updates(make_schedule(name, {.lanes = 4, .micro_batches = 8}));
    const auto memory = memory_of(schedule, {.update_s = 0.5, .weight_bytes = 1});
    const std::vector<int> versions = versions_held(schedule);
    for (size_t lane = 0; lane < memory.size(); ++lane) {
      EXPECT_EQ(peak(memory[lane]), versions[lane]) << "lane " << lane;
      EXPECT_EQ(memory[lane].back().bytes, 1);
    }
  }
}

TEST(Memory, ATraceOfSomethingElseIsRefused) {
  Schedule schedule = schedule_of("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3\n1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3\n");
  const CostModel costs = CostModel::uniform(2, {});
  const auto error = [&](const CostModel& costs, const Trace& trace) {
    return error_of([&] { with_memory(schedule, costs, trace); });
  };
  EXPECT_EQ(error(CostModel::uniform(1, {}), {.ranks = 2, .spans = {}}),
            "a schedule of 2 stages needs the costs of as many, got those of 1");
  EXPECT_EQ(error(costs, {.ranks = 4, .spans = {}}),
            "a trace of this schedule has one rank per lane, that is 2, got 4");
  for (const Span& span : {Span{2, {Op::forward, 0, 0}, 0, 1}, Span{-1, {Op::forward, 0, 0}, 0, 1}}) {
    EXPECT_EQ(error(costs, {.ranks = 2, .spans = {span}}),
              fmt::format("0F0 of rank {} in the trace isn't of this schedule", span.rank));
  }
  EXPECT_EQ(error(costs, {.ranks = 2, .spans = {{0, {Op::forward, 5, 0}, 0, 1}}}),
            "5F0 of rank 0 in the trace isn't of this schedule");
  EXPECT_EQ(error(costs, {.ranks = 2, .spans = {{0, {Op::backward, 0, 4}, 0, 1}}}),
            "0B4 of rank 0 in the trace isn't of this schedule");
  // Only one update, and an action in the lanes that the schedule doesn't have is validate()'s to name.
  schedule.lanes[0].push_back({Op::forward, 1'000'000, 0});
  EXPECT_EQ(error(costs, {.ranks = 2, .spans = {{0, {Op::optimizer_step, 0, 1}, 0, 1}}}),
            "0O of rank 0 in the trace isn't of this schedule");
  EXPECT_EQ(error(costs, {.ranks = 2, .spans = {{0, {Op::optimizer_step, 0, 0}, 0, 1}}}), "no error");
}

}  // namespace
}  // namespace troika

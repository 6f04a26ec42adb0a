// simulate() and with_memory() on random schedules (support/random_schedule.h): the times are those of the
// plain simulation, the versions of weights those of the order alone.
#include <gtest/gtest.h>

#include "support/naive_simulation.h"
#include "support/random_schedule.h"
#include "troika/base/error.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_text.h"
#include "troika/simulate/simulate.h"

namespace troika {
namespace {

constexpr int kSchedules = 1'000;

CostModel random_costs(int stages, FuzzRandom& random) {
  const auto quarters = [&](size_t most) { return static_cast<double>(random.below(most + 1)) / 4; };
  CostModel costs = CostModel::uniform(stages, {}, {.latency_s = 0.25, .seconds_per_byte = 0.5});
  for (StageCost& cost : costs.stages) {
    cost.forward_s = quarters(12), cost.input_s = quarters(12), cost.weight_s = quarters(6);
    cost.load_s = quarters(2), cost.reduce_s = quarters(2), cost.update_s = quarters(4);
    cost.output_bytes = quarters(8), cost.weight_bytes = 1;
  }
  return costs;
}

// Stated messages may make a step longer, where a receive stands before its consumer; never shorter.
TEST(RandomSchedule, TimesAreThoseOfThePlainSimulation) {
  for (int run = 0; run < kSchedules; ++run) {
    FuzzRandom random(static_cast<uint64_t>(7'000'000 + run));
    const Schedule compute = RandomSchedule(random).make();
    const Schedule step = whole_step(with_recompute(compute, {0}));
    const CostModel costs = random_costs(compute.num_stages(), random);
    for (const Schedule& schedule : {compute, step, forward_only(compute)}) {
      ASSERT_EQ(simulate(schedule, costs).spans, NaiveSimulation(schedule, costs).run()) << to_text(schedule);
    }
    ASSERT_LE(simulate(compute, costs).duration_s(), simulate(with_messages(compute), costs).duration_s())
        << to_text(compute);
  }
}

TEST(RandomSchedule, VersionsOfWeightsAreThoseOfTheOrder) {
  int several = 0;
  for (int run = 0; run < kSchedules; ++run) {
    FuzzRandom random(static_cast<uint64_t>(8'000'000 + run));
    const Schedule schedule = with_updates(RandomSchedule(random).make());
    CostModel costs = random_costs(schedule.num_stages(), random);
    const std::vector<int> versions = versions_held(schedule);
    std::vector<double> most(schedule.lanes.size()), at_end(schedule.lanes.size());
    for (int stage = 0; stage < schedule.num_stages(); ++stage) {
      most[static_cast<size_t>(schedule.lane_of(stage))] += versions[static_cast<size_t>(stage)];
      at_end[static_cast<size_t>(schedule.lane_of(stage))] += 1;
    }
    several += std::ranges::max(versions) > 1;
    const Trace trace = with_memory(schedule, costs, simulate(schedule, costs));
    for (size_t lane = 0; lane < most.size(); ++lane) {
      for (const MemoryLevel& level : trace.memory[lane])
        ASSERT_LE(level.bytes, most[lane]) << to_text(schedule);
      ASSERT_EQ(trace.memory[lane].back().bytes, at_end[lane]) << to_text(schedule);
    }
  }
  EXPECT_GT(several, kSchedules / 10);
}

}  // namespace
}  // namespace troika

#include "troika/schedule/liveness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "schedule/many_schedules.h"
#include "troika/schedule/passes.h"

namespace troika {
namespace {

Schedule read(const std::string& text) { return parse_schedule(text, "test"); }

TEST(LanePeaks, AreHeldFromForwardToBackward) {
  EXPECT_EQ(lane_peaks(read("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n")),
            (std::vector<LanePeaks>{{2, 0, 2}, {1, 0, 1}}));
  EXPECT_EQ(lane_peaks(read("0F0 0I0 0F1 0I1 0W0 0W1\n")), (std::vector<LanePeaks>{{1, 2, 2}}));
  EXPECT_EQ(lane_peaks(read("0F0 0F1 0I0 0F2 0W0 0I1 0W1 0B2\n")), (std::vector<LanePeaks>{{2, 1, 3}}));
  EXPECT_EQ(lane_peaks(read("0F0 1F0 2F0 2B0 1I0 0B0 1W0\n")), (std::vector<LanePeaks>{{1, 1.0 / 3, 1}}))
      << "a third each";
  EXPECT_EQ(lane_peaks(read("0F0 1F0 1B0 0B0\n-\n")), (std::vector<LanePeaks>{{1, 0, 1}, {0, 0, 0}}));
}

TEST(LanePeaks, OfForwardsAloneAreTheOneAtWork) {
  EXPECT_EQ(lane_peaks(read("# kind=forward\n0F0 1F0 0F1 1F1\n")), (std::vector<LanePeaks>{{0.5, 0, 0.5}}));
}

TEST(LanePeaks, KnowNoMessagesLoadsAndUpdates) {
  for (const auto& [name, schedule] : many_schedules()) {
    EXPECT_EQ(lane_peaks(whole_step(schedule)), lane_peaks(schedule)) << name;
  }
}

// Counts at every step, from its definition, who is between which passes.
LanePeaks counted(const Schedule& schedule, int lane) {
  const Lane& actions = schedule.lanes[static_cast<size_t>(lane)];
  const auto place = [&](Op op, const Action& of) {
    return std::ranges::find(actions, Action{op, of.stage, of.micro_batch}) - actions.begin();
  };
  const auto end = static_cast<std::ptrdiff_t>(actions.size());
  int64_t most[3] = {0, 0, 0};
  for (std::ptrdiff_t now = 0; now < end; ++now) {
    int64_t activations = 0, pending = 0;
    for (const Action& action : actions) {
      if (action.op != Op::forward) continue;
      const auto input = std::min(place(Op::backward, action), place(Op::backward_input, action));
      const auto weight = place(Op::backward_weight, action);
      activations += place(Op::forward, action) <= now && now <= input;
      pending += weight < end && input < now && now <= weight;
    }
    most[0] = std::max(most[0], activations);
    most[1] = std::max(most[1], pending);
    most[2] = std::max(most[2], activations + pending);
  }
  const auto stages = static_cast<double>(std::ranges::count(schedule.lane_of_stage, lane));
  return {static_cast<double>(most[0]) / stages, static_cast<double>(most[1]) / stages,
          static_cast<double>(most[2]) / stages};
}

TEST(LanePeaks, AreThoseCountedAtEveryStep) {
  for (const auto& [name, schedule] : many_schedules()) {
    if (schedule.kind == Kind::forward || schedule.num_actions() > 120) continue;
    const std::vector<LanePeaks> peaks = lane_peaks(schedule);
    for (int lane = 0; lane < schedule.num_lanes(); ++lane) {
      if (schedule.lanes[static_cast<size_t>(lane)].empty()) continue;
      EXPECT_EQ(peaks[static_cast<size_t>(lane)], counted(schedule, lane)) << name << ", lane " << lane;
    }
  }
}

TEST(FirstStepAbove, IsThePlaceWhereTheLimitIsPassed) {
  const Schedule schedule = read("0F0 0F1 0B0 0F2 0F3 0B1 0B2 0B3\n");
  EXPECT_EQ(first_step_above(schedule, 0, 0.5), 0);
  EXPECT_EQ(first_step_above(schedule, 0, 1), 1);
  EXPECT_EQ(first_step_above(schedule, 0, 2), 4);
  EXPECT_EQ(first_step_above(schedule, 0, 3), -1);
  EXPECT_EQ(first_step_above(read("0F0 1F0 2F0 2B0 1B0 0B0\n"), 0, 0.666667), 2) << "two thirds, as typed";
  for (const auto& [name, each] : many_schedules()) {
    const std::vector<LanePeaks> peaks = lane_peaks(each);
    for (int lane = 0; lane < each.num_lanes(); ++lane) {
      const double held = peaks[static_cast<size_t>(lane)].held;
      EXPECT_EQ(first_step_above(each, lane, held), -1) << name;
      EXPECT_EQ(first_step_above(each, lane, held - 0.01) >= 0, held > 0) << name;
    }
  }
}

TEST(VersionsHeld, AreThoseInFlightAndTheNewest) {
  EXPECT_EQ(versions_held(read("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n")), (std::vector{1, 1}));
  EXPECT_EQ(versions_held(read("0F0 0F1 0B0 0B1 0O\n1F0 1B0 1F1 1B1 1O\n")), (std::vector{1, 1}));
  EXPECT_EQ(versions_held(read("0F0 0B0 0O 0F1 0B1 0O\n")), (std::vector{1}));
  EXPECT_EQ(versions_held(read("0F0 0F1 0B0 0O 0F2 0B1 0O 0B2 0O\n1F0 1B0 1O 1F1 1B1 1O 1F2 1B2 1O\n")),
            (std::vector{2, 1}));
  EXPECT_EQ(versions_held(read("0F0 0F1 0F2 0B0 0O 0F3 0B1 0O 0F4 0B2 0O 0B3 0O 0B4 0O\n")),
            (std::vector{3}));
  EXPECT_EQ(versions_held(read("0F0 0F1 0B0 0O 0I1 0W1 0O\n")), (std::vector{2}));
  // The newest is held even while no forward uses it.
  EXPECT_EQ(versions_held(read("0F0 0B0 0O 0F1 0F2 0B1 0O 0B2 0O\n")), (std::vector{2}));
  // In flight until the weight part has ended, too.
  EXPECT_EQ(versions_held(read("# updates=2\n0F0 0F1 0F2 0I0 0I1 0I2 0W0 0W1 0O 0W2 0O\n")),
            (std::vector{2}));
}

TEST(VersionsHeld, AreThoseCountedAtEveryStep) {
  int asynchronous = 0;
  for (const auto& [name, compute] : many_schedules()) {
    const Schedule schedule = compute.stated.updates ? compute : with_updates(compute);
    std::vector<int> expected(static_cast<size_t>(schedule.num_stages()), 1);
    for (const Lane& lane : schedule.lanes) {
      std::map<int, int> newest;
      std::map<int, std::map<int, int>> in_flight;  // per stage: micro-batch -> version
      for (const auto& [op, stage, micro_batch, peer] : lane) {
        if (op == Op::optimizer_step) ++newest[stage];
        if (op == Op::forward) in_flight[stage][micro_batch] = newest[stage];
        if (op == Op::backward || op == Op::backward_weight) in_flight[stage].erase(micro_batch);
        std::set<int> versions{newest[stage]};
        for (const auto& [each, version] : in_flight[stage]) versions.insert(version);
        int& most = expected[static_cast<size_t>(stage)];
        most = std::max(most, static_cast<int>(versions.size()));
      }
    }
    EXPECT_EQ(versions_held(schedule), expected) << name;
    asynchronous += std::ranges::max(expected) > 1;
  }
  EXPECT_GT(asynchronous, 5);
}

}  // namespace
}  // namespace troika

#include "troika/schedule/needs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "schedule/many_schedules.h"
#include "troika/schedule/graph.h"
#include "troika/schedule/passes.h"

namespace troika {
namespace {

std::string needs_of(const std::string& action, const Schedule& schedule) {
  std::string names;
  for (const Action& needed : needs(parse_action(action), schedule)) {
    names += (names.empty() ? "" : " ") + to_string(needed);
  }
  return names;
}

// Stages 0 and 1 in lane 0, 2 and 3 in lane 1; a skip over each.
Schedule with_skips() {
  Schedule schedule = empty_schedule(Kind::train, 5, {0, 0, 1, 1});
  schedule.edges = {{0, 1}, {0, 2}, {1, 2}, {1, 3}, {2, 3}};
  schedule.num_updates = 2;
  return schedule;
}

TEST(Needs, AreToldInTheFinestTerms) {
  const Schedule schedule = with_skips();
  const std::pair<const char*, const char*> expected[] = {
      {"0L1", ""},
      {"0F1", "0L1"},
      {"1F1", "0F1"},
      {"2F1", "2RF1<0 2RF1<1"},
      {"3F1", "3L1 3RF1<1 2F1"},
      {"2RF1<0", "0SF1>2"},
      {"0SF1>2", "0F1"},
      {"0C1", "0F1"},
      {"3B1", "3C1"},
      {"2B1", "2C1 3I1"},
      {"2I1", "2C1 3I1"},
      {"1I1", "1C1 1RG1<2 1RG1<3"},
      {"0B1", "0C1 1I1 0RG1<2"},
      {"0W1", "0I1"},
      {"1RG1<3", "3SG1>1"},
      {"3SG1>1", "3I1"},
      {"0R", "0W0 0W1 0W2"},
      {"0O", "0R"},
  };
  for (const auto& [action, needed] : expected) EXPECT_EQ(needs_of(action, schedule), needed) << action;
  const auto second = needs({Op::reduce_gradients, 2, 1}, schedule);
  EXPECT_EQ(second, (std::vector<Action>{{Op::backward_weight, 2, 3}, {Op::backward_weight, 2, 4}}));
  EXPECT_EQ(needs({Op::optimizer_step, 2, 1}, schedule), (std::vector<Action>{{Op::reduce_gradients, 2, 1}}));
}

TEST(Needs, OfOneStageAlone) {
  const Schedule schedule = empty_schedule(Kind::train, 1, {0});
  EXPECT_EQ(needs_of("0F0", schedule), "0L0");
  EXPECT_EQ(needs_of("0B0", schedule), "0C0");
}

// "1B1: 1F1 1RG1<2", what the graph says about one action.
std::string resolved(const std::string& text, const std::string& action) {
  const Schedule schedule = parse_schedule(text, "test");
  const ActionGraph graph(schedule);
  std::string names;
  for (const int number : graph.needs(graph.index().find(parse_action(action)))) {
    names += (names.empty() ? "" : " ") + to_string(graph.action(number));
  }
  return names;
}

TEST(ActionGraph, WhatIsNotStatedStandsForWhatItNeeds) {
  const std::string silent = "0F0 0B0 0O\n1F0 1I0 1W0 1O\n";
  EXPECT_EQ(resolved(silent, "0F0"), "");
  EXPECT_EQ(resolved(silent, "1F0"), "0F0");
  EXPECT_EQ(resolved(silent, "1I0"), "1F0");
  EXPECT_EQ(resolved(silent, "0B0"), "0F0 1I0");
  EXPECT_EQ(resolved(silent, "1O"), "1W0");
  EXPECT_EQ(resolved(silent, "0O"), "0B0");
  const std::string whole = "0L0 0F0 0SF0>1 0RG0<1 0C0 0B0 0R 0O\n1L0 1RF0<0 1F0 1B0 1SG0>0 1R 1O\n";
  EXPECT_EQ(resolved(whole, "1F0"), "1L0 1RF0<0");
  EXPECT_EQ(resolved(whole, "0B0"), "0C0 0RG0<1");
  EXPECT_EQ(resolved(whole, "1SG0>0"), "1B0");
  EXPECT_EQ(resolved(whole, "0RG0<1"), "1SG0>0");
  EXPECT_EQ(resolved(whole, "0O"), "0R");
}

// The same slowly: looks each needed action up in a set, and goes on from what isn't there.
void expand(const Action& action, const Schedule& schedule, const std::map<Action, int>& numbers,
            std::set<int>& found) {
  for (const Action& needed : needs(action, schedule)) {
    Action whole = needed;
    whole.op = Op::backward;
    const bool part = needed.op == Op::backward_input || needed.op == Op::backward_weight;
    if (const auto at = numbers.find(needed); at != numbers.end()) {
      found.insert(at->second);
    } else if (const auto both = numbers.find(whole); part && both != numbers.end()) {
      found.insert(both->second);
    } else {
      expand(needed, schedule, numbers, found);
    }
  }
}

TEST(ActionGraph, IsWhatNeedsSays) {
  int64_t checked = 0;
  for (const auto& [name, compute] : many_schedules()) {
    for (const Schedule& schedule : {compute, with_messages(compute), whole_step(compute)}) {
      const ActionGraph graph(schedule);
      std::map<Action, int> numbers;
      int number = 0;
      for (int lane = 0; lane < schedule.num_lanes(); ++lane) {
        ASSERT_EQ(graph.first_of(lane), number);
        for (const Action& action : schedule.lanes[static_cast<size_t>(lane)]) {
          ASSERT_EQ(graph.action(number), action);
          ASSERT_EQ(graph.lane(number), lane);
          ASSERT_EQ(graph.index().find(action), number) << name << " " << to_string(action);
          numbers[action] = number++;
        }
      }
      ASSERT_EQ(graph.size(), number);
      ASSERT_EQ(graph.first_of(schedule.num_lanes()), number);
      for (const auto& [action, at] : numbers) {
        std::set<int> expected;
        expand(action, schedule, numbers, expected);
        const auto got = graph.needs(at);
        ASSERT_EQ(std::set<int>(got.begin(), got.end()), expected) << name << " " << to_string(action);
        ASSERT_EQ(got.size(), expected.size()) << name << " " << to_string(action);
        checked += static_cast<int64_t>(got.size());
      }
    }
  }
  EXPECT_GT(checked, 10'000);
}

TEST(ActionIndex, FindsNothingThatIsNotThere) {
  const Schedule schedule = parse_schedule("0F0 0SF0>1 0RG0<1 0B0 0B0\n1RF0<0 1F0 1B0 1SG0>0\n", "test");
  const ActionIndex index(schedule);
  EXPECT_EQ(index.find(parse_action("0B0")), 3) << "of equal ones the first";
  for (const char* action : {"0I0", "0F1", "2F0", "0L0", "0R", "0O", "0SF0>2", "0SG0>1", "0SF1>1", "0SF0>0",
                             "1SF0>0", "0RF0<1", "9999F0", "0F99999", "0SF0>99999"}) {
    EXPECT_EQ(index.find(parse_action(action)), -1) << action;
  }
  for (const Action& action : {Action{Op::forward, -1, 0}, Action{Op::forward, 0, -1},
                               Action{Op::optimizer_step, 0, 1}, Action{Op::send_activation, 0, 0, -1}}) {
    EXPECT_EQ(index.find(action), -1);
    EXPECT_FALSE(index.names_what_exists(action));
  }
  EXPECT_TRUE(index.names_what_exists(parse_action("0I0")));
}

TEST(ActionIndex, FitsWhatIsNoLargerThanItsLanes) {
  const Schedule good = parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n", "test");
  EXPECT_TRUE(ActionIndex::fits(good));
  const auto fits_with = [&](const auto& change) {
    Schedule changed = good;
    change(changed);
    return ActionIndex::fits(changed);
  };
  EXPECT_TRUE(fits_with([](Schedule& s) { s.num_micro_batches = 4; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.num_micro_batches = 5; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.num_micro_batches = 2'147'483'647; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.num_micro_batches = 0; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.num_updates = 0; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.num_updates = 3; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.lane_of_stage[1] = 2; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.lane_of_stage[1] = -1; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.edges = {{1, 0}}; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.edges = {{0, 2}}; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.edges = {{-1, 1}}; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.edges = {{0, 1}, {0, 1}}; }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.max_versions.pop_back(); }));
  EXPECT_FALSE(fits_with([](Schedule& s) { s.recomputed = {true}; }));
  Schedule wide = empty_schedule(Kind::forward, 1, {0, 1, 2, 3});
  for (int stage = 0; stage < 4; ++stage) wide.lanes[static_cast<size_t>(stage)] = {{Op::forward, stage, 0}};
  wide.edges = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}};
  EXPECT_TRUE(ActionIndex::fits(wide));
  wide.stated.messages = true;
  EXPECT_FALSE(ActionIndex::fits(wide)) << "five messages can't stand in four actions";
}

}  // namespace
}  // namespace troika

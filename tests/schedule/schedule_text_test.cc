#include "troika/schedule/schedule_text.h"

#include <gtest/gtest.h>

#include "schedule/many_schedules.h"
#include "support/error_of.h"
#include "troika/schedule/passes.h"

namespace troika {
namespace {

Schedule parse_lanes(const std::string& text) { return parse_schedule(text, "lanes.txt"); }
std::string error_in_text(const std::string& text) {
  return error_of([&] { parse_lanes(text); });
}

const std::string kSmall =
    "# kind=train micro_batches=2 edges=0>1 versions=1,1\n"
    "0F0 0F1 0B0 0B1\n"
    "1F0 1B0 1F1 1B1\n";

TEST(ScheduleText, IsReadAsItStands) {
  Schedule expected = empty_schedule(Kind::train, 2, {0, 1});
  expected.lanes[0] = {{Op::forward, 0, 0}, {Op::forward, 0, 1}, {Op::backward, 0, 0}, {Op::backward, 0, 1}};
  expected.lanes[1] = {{Op::forward, 1, 0}, {Op::backward, 1, 0}, {Op::forward, 1, 1}, {Op::backward, 1, 1}};
  EXPECT_EQ(parse_lanes(kSmall), expected);
  EXPECT_EQ(to_text(expected), kSmall);
}

TEST(ScheduleText, TheHeaderMayBeLeftOut) {
  EXPECT_EQ(parse_lanes("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"), parse_lanes(kSmall));
  const Schedule forward = parse_lanes("0F0 0F1\n1F0 1F1\n");
  EXPECT_EQ(forward.kind, Kind::train);
  EXPECT_EQ(forward.num_micro_batches, 2);
  EXPECT_EQ(forward.num_updates, 1);
}

TEST(ScheduleText, BlanksLineEndsAndCommentsDontMatter) {
  EXPECT_EQ(
      parse_lanes(
          "\xEF\xBB\xBF# 1F1B by hand\r\n\r\n  \t0F0 \t0F1  0B0 0B1 \t\r\n#second lane\n1F0 1B0 1F1 1B1 "),
      parse_lanes(kSmall));
  EXPECT_EQ(parse_lanes(
                "#kind=train   versions=1,1\n\n0F0 0F1 0B0 0B1\n# the other:\n1F0 1B0 1F1 1B1\n# the end\n"),
            parse_lanes(kSmall));
}

TEST(ScheduleText, AStageStandsInTheLaneOfItsFirstAction) {
  EXPECT_EQ(parse_lanes("0F0 2F0 2B0 0B0\n1F0 1B0\n").lane_of_stage, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(parse_lanes("-\n0F0 0B0\n0W0\n").lane_of_stage, (std::vector<int>{1}));
  // Stage 1 has no action: that is wrong, but well written.
  EXPECT_EQ(parse_lanes("0F0 0B0\n2F0 2B0\n").lane_of_stage, (std::vector<int>{0, -1, 1}));
}

TEST(ScheduleText, EveryKeyOfTheHeaderCounts) {
  const Schedule s = parse_lanes(
      "# kind=forward micro_batches=5 edges=0>2,0>1 versions=1,2,3 updates=4 recompute=0,2 "
      "states=messages,updates\n0F0\n1F0\n2F0\n");
  EXPECT_EQ(s.kind, Kind::forward);
  EXPECT_EQ(s.num_micro_batches, 5);
  EXPECT_EQ(s.edges, (std::vector<Edge>{{0, 1}, {0, 2}}));
  EXPECT_EQ(s.max_versions, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(s.num_updates, 4);
  EXPECT_EQ(s.recomputed, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(s.stated, (Stated{.messages = true, .updates = true}));
  EXPECT_EQ(parse_lanes(to_text(s)), s);
}

TEST(ScheduleText, WhatStandsInTheLanesIsStated) {
  EXPECT_EQ(parse_lanes("0L0 0F0 0B0\n").stated, (Stated{.loads = true}));
  EXPECT_EQ(parse_lanes("0F0 0SF0>1 0B0\n1F0 1B0\n").stated, (Stated{.messages = true}));
  EXPECT_EQ(parse_lanes("0F0 0B0 0R\n").stated, (Stated{.reductions = true}));
  EXPECT_EQ(parse_lanes("0F0 0B0 0O\n").stated, (Stated{.updates = true}));
  EXPECT_EQ(parse_lanes("0F0 0B0\n").stated, Stated{});
  EXPECT_EQ(parse_lanes("0F0 0B0\n1F0 1C0 1B0\n").recomputed, (std::vector<bool>{false, true}));
  EXPECT_EQ(parse_lanes("0F0 0B0\n").recomputed, std::vector<bool>{});
}

TEST(ScheduleText, UpdatesAreNumberedInTheirOrder) {
  const Schedule s = parse_lanes("0F0 0B0 0R 0O 0F1 0B1 0R 0O\n1F0 1B0 1F1 1B1 1R\n");
  EXPECT_EQ(s.num_updates, 2);
  EXPECT_EQ(s.lanes[0][2], (Action{Op::reduce_gradients, 0, 0}));
  EXPECT_EQ(s.lanes[0][3], (Action{Op::optimizer_step, 0, 0}));
  EXPECT_EQ(s.lanes[0][6], (Action{Op::reduce_gradients, 0, 1}));
  EXPECT_EQ(s.lanes[0][7], (Action{Op::optimizer_step, 0, 1}));
  EXPECT_EQ(s.lanes[1].back(), (Action{Op::reduce_gradients, 1, 0}));
}

TEST(ScheduleText, AllSchedulesComeBackAsTheyWere) {
  int count = 0;
  for (const auto& [name, schedule] : many_schedules()) {
    std::vector<Schedule> all = {schedule,
                                 with_split_backward(schedule),
                                 with_loads(schedule, 1),
                                 with_messages(schedule),
                                 with_reductions(schedule),
                                 with_updates(schedule),
                                 with_recompute(schedule, {0}),
                                 forward_only(schedule),
                                 with_messages(forward_only(schedule)),
                                 whole_step(schedule),
                                 whole_step(with_split_backward(with_recompute(schedule, {0})))};
    all.push_back(schedule);
    all.back().recomputed.assign(static_cast<size_t>(schedule.num_stages()), false);
    for (const Schedule& each : all) {
      ++count;
      ASSERT_EQ(parse_lanes(to_text(each)), each) << name << "\n" << to_text(each);
    }
  }
  EXPECT_GT(count, 1000);
}

TEST(ScheduleText, ErrorsNameThePlace) {
  const std::string error = error_in_text("# a comment\n0F0 0B0\n1F0 1B0 1F1 1B1 2X0\n");
  EXPECT_EQ(error.find("lanes.txt:3: action 5 \"2X0\": expected stage, letters"), 0U) << error;
  EXPECT_EQ(error_in_text(""), error_in_text("\n# nothing here\n\n"));
  EXPECT_NE(error_in_text("").find("lanes.txt: there are no lanes"), std::string::npos);
}

TEST(ScheduleText, TheHeaderIsChecked) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"kind=trains", "kind=trains: expected train or forward"},
      {"kind=", "kind=: expected train or forward"},
      {"kinds=train", "\"kinds\" is no key of the header (did you mean \"kind\"?)"},
      {"kind=train versoins=1,1", "\"versoins\" is no key of the header (did you mean \"versions\"?)"},
      {"kind=train word", "\"word\" is no key of the header"},
      {"kind=train kind=train", "kind is given twice"},
      {"micro_batches=x", "micro_batches=x: expected a whole number from 0"},
      {"micro_batches=-1", "micro_batches=-1: expected a whole number from 0"},
      {"micro_batches=99999999999", "micro_batches=99999999999: expected a whole number from 0"},
      {"updates=0", "updates=0: expected a whole number from 1"},
      {"updates=2x", "updates=2x: expected a whole number from 1"},
      {"edges=0>2", "edges: 0>2: expected a stage and a later one of the 2 stages (0 to 1)"},
      {"edges=1>0", "edges: 1>0: expected a stage and a later one"},
      {"edges=1>1", "edges: 1>1: expected a stage and a later one"},
      {"edges=0-1", "edges: \"0-1\": expected pairs of stages"},
      {"edges=0>1,", "edges: \"\": expected pairs of stages"},
      {"edges=0>1,0>1", "edges: 0>1 is given twice"},
      {"versions=1", "versions: expected 2 numbers, one per stage, got 1"},
      {"versions=1,1,1", "versions: expected 2 numbers, one per stage, got 3"},
      {"versions=1,0", "versions=0: expected a whole number from 1"},
      {"recompute=2", "recompute: there is no stage 2: the stages are 0 to 1"},
      {"states=loads,mesages", "states: \"mesages\" is unknown (did you mean \"messages\"?)"},
      {"kind=train\n# kind=train", "lanes.txt:2: a second header; the first one is line 1"},
  };
  for (const auto& [header, expected] : cases) {
    const std::string error = error_in_text("# " + header + "\n0F0 0B0\n1F0 1B0\n");
    EXPECT_NE(error.find(expected), std::string::npos) << error;
    EXPECT_EQ(error.find("lanes.txt:"), 0U) << error;
  }
  EXPECT_EQ(error_in_text("0F0 0B0\n# kind=train\n"),
            "lanes.txt:2: expected the header before the first lane");
}

TEST(ScheduleText, ANumberThatCannotBeTrueIsNamedAndNotMadeRoomFor) {
  EXPECT_EQ(error_in_text("0F0 0B0\n2147483647F0 1B0\n")
                .find("lanes.txt:2: action 1 \"2147483647F0\": there are 4 actions in all, too few for a "
                      "stage 2147483647"),
            0U);
  EXPECT_EQ(
      error_in_text("0F0 0B2147483647\n").find("lanes.txt:1: action 2 \"0B2147483647\": expected a smaller"),
      0U);
  EXPECT_NE(error_in_text("0F0\n2F0\n").find("too few for a stage 2"), std::string::npos);
  EXPECT_EQ(parse_lanes("0F0\n1F0\n").num_stages(), 2);
  EXPECT_EQ(parse_lanes("0F2147483646\n").num_micro_batches, 2147483647);
  EXPECT_EQ(parse_lanes("0F0 0SF0>2147483647\n").num_stages(), 1);
}

TEST(ScheduleText, StrangeBytesAreRefusedReadably) {
  const std::string error = error_in_text(std::string("0F0 0\0F1\n", 9));
  EXPECT_EQ(error.find("lanes.txt:1: action 2 \"0\\x00F1\": expected"), 0U) << error;
  for (const std::string text :
       {"0F0,0F1", "0F0 \xFF\xFE", "0F0 \xE2\x82", "- 0F0", "0F0 -", "0f0", "0F0;0B0"}) {
    EXPECT_EQ(error_in_text(text).find("lanes.txt:1: action "), 0U) << error_in_text(text);
  }
}

}  // namespace
}  // namespace troika

// How a fault is shown.
#include <gtest/gtest.h>

#include "schedule/faults_of.h"
#include "support/error_of.h"
#include "troika/base/text.h"

namespace troika {
namespace {

TEST(Explain, ShowsThePlace) {
  const Schedule schedule = parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1B1 1F1\n", "test");
  EXPECT_EQ(explain(schedule, validate(schedule).faults.at(0)),
            "step    0    1    2    3\n"
            "lane 0  0F0  0F1  0B0  0B1\n"
            "lane 1  1F0  1B0 >1B1< 1F1   <-- here\n"
            "1B1 in lane 1, step 2: it needs 1F1 first, which stands later in its lane, at step 3");
  const Schedule missing = parse_schedule("0F0 0F1 0B0\n1F0 1B0 1F1 1B1\n", "test");
  EXPECT_EQ(explain(missing, validate(missing).faults.at(0)),
            "step    0    1    2    3\n"
            "lane 0  0F0  0F1  0B0        <-- missing\n"
            "lane 1  1F0  1B0  1F1  1B1\n"
            "lane 0: 0B1 is missing: each stage does a backward of each micro-batch, as B or as I and W");
  EXPECT_EQ(explain(schedule, Fault{-1, -1, {}, "because"}), "because");
  EXPECT_EQ(explain(schedule, Fault{9, 1, {}, "because"}), "because");
}

TEST(Explain, IsAWindowOfALargeSchedule) {
  Schedule schedule = one_f_one_b(64, 256);
  Lane& lane = schedule.lanes[30];
  const auto backward = std::ranges::find(lane, Action{Op::backward, 30, 100});
  const auto step = static_cast<int>(backward - lane.begin());
  std::swap(*backward, *(backward - 1));
  const Verdict verdict = validate(schedule);
  ASSERT_EQ(verdict.faults.size(), 1U);
  EXPECT_EQ(verdict.faults[0].step, step - 1);
  const std::string text = explain(schedule, verdict.faults[0]);
  EXPECT_NE(text.find(">30B100< "), std::string::npos) << text;
  EXPECT_NE(text.find("(24 lanes above)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("(27 lanes below)\n"), std::string::npos) << text;
  const auto lines = split_text(text, '\n');
  EXPECT_EQ(lines.size(), 17U) << text;
  for (size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_LE(lines[i].size(), 100U) << lines[i];
}

TEST(RequireValid, ThrowsWhatTheFirstFaultIs) {
  const Schedule schedule = parse_schedule("0F0 0B0 0B0\n1F0 1B0 1F0\n", "test");
  const std::string message = error_of([&] { require_valid(schedule, "mine.txt"); });
  EXPECT_EQ(message, "schedule mine.txt can't be run:\n" +
                         explain(schedule, validate(schedule).faults.at(0)) + "\n(1 more fault)");
  EXPECT_EQ(error_of([&] { require_valid(parse_schedule("0F0 0B0\n1F0 1B0\n", "test"), "mine.txt"); }),
            "no error");
}

}  // namespace
}  // namespace troika

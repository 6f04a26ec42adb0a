// Lanes that wait for each other, and the order and buffers of their messages.
#include "troika/schedule/deadlock.h"

#include <gtest/gtest.h>

#include "schedule/faults_of.h"

namespace troika {
namespace {

TEST(Deadlock, LanesThatWaitForEachOther) {
  expect_fault("0F1 0B1 0F0 0B0\n1F0 1B0 1F1 1B1\n", "0 1 0B1",
               "the lanes wait for each other: lane 0 waits at step 1 (0B1) for 1B1; lane 1 waits at step 0 "
               "(1F0) for 0F0");
  // Lane 0 hangs on lane 1, and lanes 1 and 2 on each other: those two are named.
  expect_fault("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n2F0 2F1 2B1 2B0\n", "0 1 0B0",
               "lane 0 waits at step 1 (0B0) for 1B0; lane 1 waits at step 1 (1F1) for 0F1");
  // A whole circle with messages is told of as one that no buffer cures.
  expect_fault("0RG0<1 0B0 0F0 0SF0>1\n1RF0<0 1F0 1B0 1SG0>0\n", "0 1 0B0", "needs 0F0 first");
  expect_fault("0F0 0SF0>1 0RG0<1 0B0 0F1 0SF1>1 0RG1<1 0B1\n1RF0<0 1F0 1RF1<0 1F1 1B0 1SG0>0 1B1 1SG1>0\n",
               "0 2 0RG0<1",
               "the lanes wait for each other: lane 0 waits at step 2 (0RG0<1) for 1SG0>0; lane 1 "
               "waits at step 2 (1RF1<0) for 0SF1>1",
               1, depth(1));
  // Lanes 0 and 1 need buffers, lanes 2 and 3 can't be helped: those are told.
  expect_fault(
      "# kind=forward edges=0>1,2>3,4>7,5>6\n0F0 0SF0>1 3RF0<2 3F0\n2F0 2SF0>3 1RF0<0 1F0\n"
      "6RF0<5 6F0 4F0 4SF0>7\n7RF0<4 7F0 5F0 5SF0>6\n",
      "2 0 6RF0<5",
      "the lanes wait for each other: lane 2 waits at step 0 (6RF0<5) for 5SF0>6; lane 3 waits at step 0 "
      "(7RF0<4) for 4SF0>7\n",
      1, depth(0));
}

// Eight lanes of two stages: what a lane does second is what the lane before it needs first.
std::string ring(const std::string& more_edges) {
  std::string text = "# kind=forward edges=";
  for (int lane = 0; lane < 8; ++lane) text += fmt::format("{}>{},", (lane + 1) % 8, 8 + lane);
  text += more_edges + "\n";
  for (int lane = 0; lane < 8; ++lane) text += fmt::format("{}F0 {}F0\n", 8 + lane, lane);
  return text;
}

TEST(Deadlock, TheShortestCircleIsTold) {
  expect_fault(ring("0>11"), "0 0 8F0",
               "lane 0 waits at step 0 (8F0) for 1F0; lane 1 waits at step 0 (9F0) for 2F0; lane 2 waits at "
               "step 0 (10F0) for 3F0; lane 3 waits at step 0 (11F0) for 0F0\n");
  expect_fault(ring("7>8"), "0 0 8F0",
               "lane 0 waits at step 0 (8F0) for 7F0; lane 7 waits at step 0 (15F0) for 0F0\n");
  expect_fault(ring("2>8"), "0 0 8F0", "(8F0) for 2F0; lane 2 waits");
  expect_fault(ring("0>8"), "0 0 8F0", "needs 0F0 first, which stands later in its lane, at step 1");
  // Lane 0 only hangs on the circle of the others, which is told from its lowest lane on.
  expect_fault("# kind=forward edges=0>4,1>3,1>5\n5F0 2F0\n3F0 0F0\n4F0 1F0\n", "1 0 3F0",
               "lane 1 waits at step 0 (3F0) for 1F0; lane 2 waits at step 0 (4F0) for 0F0\n");
  std::string all = ring("");
  all.erase(all.find(",\n"), 1);
  expect_fault(all, "0 0 8F0", "(13F0) for 6F0; and so on over 8 lanes, back to lane 0\n");
}

TEST(Deadlock, MessagesOfTwoLanesHaveOneOrder) {
  expect_fault("0F0 0SF0>1 0F1 0SF1>1 0RG0<1 0B0 0RG1<1 0B1\n1RF1<0 1RF0<0 1F0 1B0 1SG0>0 1F1 1B1 1SG1>0\n",
               "1 0 1RF1<0",
               "number 0 (from 0) of the messages from lane 0 to lane 1 is received as 1RF1<0, and sent as "
               "0SF0>1 in lane 0, step 1");
  expect_fault("0F0 0SF0>1 0F1 0SF1>1 0RG0<1 0B0 0RG1<1 0B1\n1RF0<0 1F0 1RF1<0 1F1 1B1 1SG1>0 1B0 1SG0>0\n",
               "0 4 0RG0<1", "is received as 0RG0<1, and sent as 1SG1>0 in lane 1, step 5");
  // Activations and gradients of different stages go along the same pair.
  const std::string lane1 = "1RF0<0 1F0 2F0 2SF0>3 2RG0<3 2B0 1B0 1SG0>0\n";
  EXPECT_EQ(faults_in("0F0 0SF0>1 3RF0<2 3F0 3B0 3SG0>2 0RG0<1 0B0\n" + lane1), "");
}

TEST(Deadlock, OneFOneBNeedsABufferOfOne) {
  for (int lanes = 1; lanes <= 6; ++lanes) {
    for (int micro_batches = 1; micro_batches <= 8; ++micro_batches) {
      const Schedule schedule = one_f_one_b(lanes, micro_batches);
      EXPECT_EQ(faults_of(schedule), "");
      EXPECT_EQ(faults_of(schedule, depth(1)), "");
      const bool deadlock = lanes >= 2 && micro_batches >= 2;
      EXPECT_EQ(needed_buffer_depth(schedule), deadlock ? 1 : 0) << lanes << " " << micro_batches;
      const std::string faults = faults_of(schedule, depth(0));
      EXPECT_EQ(faults.find("deadlock with blocking sends: ") != std::string::npos, deadlock) << faults;
      if (!deadlock) continue;
      EXPECT_NE(faults.find("; a buffer of 1 message per pair of lanes cures it"), std::string::npos)
          << faults;
      EXPECT_EQ(std::ranges::count(faults, ';'), 2) << "a circle of two lanes: " << faults;
    }
  }
  EXPECT_EQ(faults_of(one_f_one_b(2, 2), depth(0)),
            "0 3 0SF1>1: deadlock with blocking sends: lane 0 waits at step 3 (0SF1>1) for 1RF1<0; lane 1 "
            "waits at step 3 (1SG0>0) for 0RG0<1; a buffer of 1 message per pair of lanes cures it\n");
}

TEST(Deadlock, TheDepthThatIsNeededIsTheSmallest) {
  for (const int count : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    // Both lanes send a few before they receive, and then one at a time.
    std::string lanes[2] = {"", ""};
    for (int i = 0; i < count; ++i) lanes[0] += fmt::format("0F{0} 0SF{0}>1 ", i);
    for (int i = 0; i < count; ++i) lanes[0] += fmt::format("3RF{0}<2 3F{0} ", i);
    for (int i = 0; i < count; ++i) lanes[1] += fmt::format("2F{0} 2SF{0}>3 ", i);
    for (int i = 0; i < count; ++i) lanes[1] += fmt::format("1RF{0}<0 1F{0} ", i);
    for (int i = count; i < 2 * count + 5; ++i) {
      lanes[0] += fmt::format("0F{0} 0SF{0}>1 3RF{0}<2 3F{0} ", i);
      lanes[1] += fmt::format("2F{0} 2SF{0}>3 1RF{0}<0 1F{0} ", i);
    }
    const Schedule schedule =
        parse_schedule(fmt::format("# kind=forward edges=0>1,2>3\n{}\n{}\n", lanes[0], lanes[1]), "test");
    ASSERT_EQ(faults_of(schedule), "");
    EXPECT_EQ(needed_buffer_depth(schedule), count);
    EXPECT_EQ(faults_of(schedule, depth(count)), "");
    const std::string faults = faults_of(schedule, depth(count - 1));
    EXPECT_NE(faults.find(fmt::format("a buffer of {} message{} per pair of lanes cures it", count,
                                      count == 1 ? "" : "s")),
              std::string::npos)
        << faults;
    const std::string waits =
        fmt::format("lane 0 waits at step {0} (0SF{1}>1) for 1RF", 2 * count - 1, count - 1);
    EXPECT_NE(faults.find(waits), std::string::npos) << faults;
  }
  EXPECT_EQ(needed_buffer_depth(parse_schedule("0F0 0B0\n1F0 1B0\n", "test")), 0) << "no messages stated";
}

}  // namespace
}  // namespace troika

// Every rule of validate(), each broken once by hand, and what it says then.
#include "troika/schedule/validate.h"

#include <gtest/gtest.h>

#include "schedule/faults_of.h"

namespace troika {
namespace {

constexpr auto kGood = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n";

TEST(Validate, AcceptsWhatIsRight) {
  for (const char* text : {
           kGood,
           "0F0 0B0\n",
           "0F0 0I0 0W0\n",
           "0F0 0F1 0I0 0B1 0W0\n",
           "0F1 0F0 0B0 0B1\n1F1 1F0 1B0 1B1\n",
           "0F0 1F0 1B0 0B0\n-\n",
           "0L0 0F0 0B0 0R 0O\n",
           "0F0 0C0 0B0\n",
           "# kind=forward\n0F0 0F1\n1F0 1F1\n",
           "0L0 0F0 0SF0>1 0RG0<1 0B0 0R 0O\n1L0 1RF0<0 1F0 1B0 1SG0>0 1R 1O\n",
           "# edges=0>1,0>2,1>2\n0F0 0B0\n1F0 1B0\n2F0 2B0\n",
           "# versions=2,1\n0F0 0F1 0B0 0O 0B1 0O\n1F0 1B0 1O 1F1 1B1 1O\n",
       }) {
    EXPECT_EQ(faults_in(text), "") << text;
  }
}

TEST(Validate, NumbersMustFit) {
  expect_fault("# micro_batches=0\n0F0 0B0\n", "-1 -1 0F0", "micro_batches=0");
  expect_fault("# updates=2\n0F0 0B0\n", "-1 -1 0F0", "updates=2: expected a whole number from 1 to");
  expect_fault("0F0 0B0 2F0 2B0\n", "-1 -1 0F0", "stage 1 stands in no lane");
  expect_fault("0F0 0B0\n1F0 1F900000000 1B0\n", "1 1 1F900000000",
               "1,799,999,999 of the 1,800,000,002 forwards of 2 stages x 900000001 micro-batches are "
               "missing: 0F1, 0F2, 0F3 ...; is the micro-batch of 1F900000000 mistyped?");
  expect_fault(
      "# micro_batches=1000\n0F0 0B0 0F1\n1F0 1F1 1B0\n", "0 -1 0F2",
      "0F2, 0F3, 0F4 ...; the highest micro-batch in the lanes is 1: is micro_batches=1000 too high?");
  expect_fault("# micro_batches=4\n0F0 0B0 0F1\n", "0 -1 0F2", "2 of the 4 forwards");
  expect_fault("# states=messages\n" + std::string("0F0\n1F0\n2F0\n"), "0 -1 0B0", "missing", 11);
  expect_fault("# edges=0>1,0>2,0>3,1>2,1>3,2>3 states=messages\n0F0\n1F0\n2F0\n3F0\n", "-1 -1 0SF0>-1",
               "6 edges between lanes x 1 micro-batches make 6 messages, and 0 activations are sent");
}

TEST(Validate, AStageHasFewEdges) {
  // More needs than anybody has: they would fill the memory.
  constexpr int kStages = 200;
  Schedule schedule = empty_schedule(Kind::forward, 1, std::vector<int>(kStages, 0));
  for (int stage = 0; stage < kStages; ++stage) schedule.lanes[0].push_back({Op::forward, stage, 0});
  EXPECT_EQ(faults_of(schedule), "");
  schedule.edges.clear();
  for (int from = 0; from < kStages; ++from) {
    for (int to = from + 1; to < kStages; ++to) schedule.edges.push_back({from, to});
  }
  EXPECT_EQ(faults_of(schedule),
            "-1 -1 0F0: there are 19,900 edges between 200 stages: expected at most 64 per stage\n");
}

TEST(Validate, ValuesThatNoTextHas) {
  const Schedule good = parse_schedule(kGood, "test");
  Schedule bad = good;
  bad.lane_of_stage = {0, 7};
  EXPECT_NE(faults_of(bad).find("stage 1 stands in lane 7, and there are 2 lanes"), std::string::npos);
  bad = good;
  bad.edges = {{1, 0}, {0, 5}, {-1, 1}};
  EXPECT_NE(faults_of(bad).find("edge 1>0: expected an edge from a stage to a later one"), std::string::npos);
  EXPECT_NE(faults_of(bad).find("edge 0>5: expected two stages from 0 to 1"), std::string::npos);
  EXPECT_NE(faults_of(bad).find("edge -1>1: expected two stages"), std::string::npos);
  bad.edges = {{0, 1}, {0, 1}};
  EXPECT_NE(faults_of(bad).find("edge 0>1: it stands twice"), std::string::npos);
  Schedule three = empty_schedule(Kind::forward, 1, {0, 0, 0});
  three.lanes = {{{Op::forward, 0, 0}, {Op::forward, 1, 0}, {Op::forward, 2, 0}}};
  EXPECT_EQ(faults_of(three), "");
  three.edges = {{1, 2}, {0, 1}};
  EXPECT_NE(faults_of(three).find("edge 0>1: expected edges in ascending order"), std::string::npos);
  bad = good;
  bad.max_versions = {1};
  EXPECT_NE(faults_of(bad).find("versions= has 1 numbers: expected one per stage, 2"), std::string::npos);
  bad.max_versions = {1, 0};
  EXPECT_NE(faults_of(bad).find("lets stage 1 keep 0 versions"), std::string::npos);
  bad = good;
  bad.recomputed = {true};
  EXPECT_NE(faults_of(bad).find("recomputed has 1 values"), std::string::npos);
  EXPECT_NE(faults_of(Schedule{}).find("there is no action"), std::string::npos);
  bad = good;
  bad.lanes[0][1].peer = 1;
  EXPECT_NE(faults_of(bad).find("only messages name a peer"), std::string::npos);
  bad = good;
  bad.stated.updates = true;
  bad.lanes[0].push_back({Op::optimizer_step, 0, 3});
  EXPECT_NE(faults_of(bad).find("stage 0 has 1 update in this schedule"), std::string::npos);
}

TEST(Validate, ActionsNameWhatExistsAndStandInTheirLane) {
  expect_fault("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1 0B1\n", "1 4 0B1",
               "stage 0 is in lane 0: all actions of a stage stand in one lane");
  expect_fault("# micro_batches=1\n0F0 0B0 0F1\n", "0 2 0F1", "there is no micro-batch 1: they are 0 to 0");
  expect_fault("0F0 0SF0>2 0B0\n", "0 1 0SF0>2", "there is no stage 2", 1);
  expect_fault(
      "# edges=0>1,1>2\n0F0 0SF0>1 0SF0>2 0RG0<1 0B0\n1RF0<0 1F0 1SF0>2 1RG0<2 1B0 1SG0>0\n"
      "2RF0<1 2F0 2B0 2SG0>1\n",
      "0 2 0SF0>2", "there is no edge 0>2");
  expect_fault("0F0 0SF0>1 0SG0>1 0RG0<1 0B0\n1RF0<0 1F0 1B0 1SG0>0\n", "0 2 0SG0>1",
               "the edge is 0>1: activations go along it, gradients come back");
  expect_fault("0F0 0SF0>1 1F0 1B0 0B0\n", "0 1 0SF0>1", "stages 0 and 1 are both in lane 0");
}

TEST(Validate, EachActionStandsOnce) {
  expect_fault("0F0 0F0 0B0\n", "0 1 0F0", "it stands twice, first in lane 0, step 0");
  expect_fault("0F0 0B0 0W0\n", "0 2 0W0", "0B0 is both parts of this backward already, in lane 0, step 1");
  expect_fault("0F0 0I0 0W0 0B0\n", "0 1 0I0", "0B0 is both parts", 2);
}

TEST(Validate, NothingIsMissing) {
  expect_fault("0F0 0F1 0B0\n1F0 1B0 1F1 1B1\n", "0 -1 0B1", "each stage does a backward");
  expect_fault("0F0 0F1 0B0 0B1\n1F0 1B0 1B1\n", "1 -1 1F1", "each stage does a forward");
  expect_fault("0F0 0I0\n", "0 -1 0W0", "the input part of this backward is there");
  expect_fault("0F0 0W0\n", "0 -1 0I0", "the weight part of this backward is there");
  expect_fault("0F0 0F1 0C0 0B0 0B1\n", "0 -1 0C1", "recomputed");
  expect_fault("0L0 0F0 0F1 0B0 0B1\n", "0 -1 0L1", "loads are stated");
  expect_fault("0L0 0F0 0B0\n1F0 1B0\n", "1 -1 1L0", "loads are stated");
  expect_fault("0F0 0B0 0R\n1F0 1B0\n", "1 -1 1R", "reductions are stated");
  expect_fault("0F0 0B0 0O\n1F0 1B0\n", "1 -1 1O", "updates are stated");
  expect_fault("# updates=2 versions=2\n0F0 0F1 0B0 0O 0B1\n", "0 -1 0O", "updates are stated");
  const std::string lowered[] = {"0F0 0SF0>1 0RG0<1 0B0\n", "1RF0<0 1F0 1B0 1SG0>0\n"};
  expect_fault("0F0 0RG0<1 0B0\n" + lowered[1], "0 -1 0SF0>1", "goes from a lane to another");
  expect_fault("0F0 0SF0>1 0B0\n" + lowered[1], "0 -1 0RG0<1", "goes from a lane to another");
  expect_fault(lowered[0] + "1F0 1B0 1SG0>0\n", "1 -1 1RF0<0", "goes from a lane to another");
  expect_fault(lowered[0] + "1RF0<0 1F0 1B0\n", "1 -1 1SG0>0", "goes from a lane to another");
}

TEST(Validate, NothingStandsThatIsNotStated) {
  expect_fault("# states=messages\n0L0 0F0 0B0\n", "0 0 0L0", "the schedule doesn't state loads");
  expect_fault("# states=-\n0F0 0SF0>1 0B0\n1F0 1B0\n", "0 1 0SF0>1", "doesn't state messages");
  expect_fault("# states=-\n0F0 0B0 0R\n", "0 2 0R", "doesn't state reductions");
  expect_fault("# states=-\n0F0 0B0 0O\n", "0 2 0O", "doesn't state updates");
  expect_fault("# recompute=-\n0F0 0C0 0B0\n", "0 1 0C0", "stage 0 is not a recomputed one");
  expect_fault("# kind=forward\n0F0 0B0\n", "0 1 0B0",
               "a forward-only schedule (kind=forward) has no backward");
  expect_fault("# kind=forward\n0F0 0O\n", "0 1 0O", "has no optimizer step");
  expect_fault("0L0 0F0 0B0\n1L0 1F0 1B0\n2L0 2F0 2B0\n", "1 0 1L0", "stage 1 loads nothing");
}

TEST(Validate, WhatALaneNeedsOfItselfStandsBefore) {
  expect_fault("0F0 0B1 0B0 0F1\n1F0 1B0 1F1 1B1\n", "0 1 0B1",
               "needs 0F1 first, which stands later in its lane, at step 3");
  expect_fault("0W0 0F0 0I0\n", "0 0 0W0", "needs 0I0 first");
  expect_fault("0F0 0B0 0C0\n", "0 1 0B0", "needs 0C0 first");
  expect_fault("0C0 0F0 0B0\n", "0 0 0C0", "needs 0F0 first");
  expect_fault("0F0 0L0 0B0\n", "0 0 0F0", "needs 0L0 first");
  expect_fault("0F0 0I0 0R 0W0\n", "0 2 0R", "needs 0W0 first");
  expect_fault("0F0 0F1 0B0 0O 0B1\n", "0 3 0O", "needs 0B1 first");
  expect_fault("0F0 0B0 0O 0R\n", "0 2 0O", "needs 0R first");
  expect_fault("1F0 0F0 1B0 0B0\n", "0 0 1F0", "needs 0F0 first");
  expect_fault("0F0 1F0 0B0 1B0\n", "0 2 0B0", "needs 1B0 first");
  expect_fault("0SF0>1 0F0 0RG0<1 0B0\n1RF0<0 1F0 1B0 1SG0>0\n", "0 0 0SF0>1", "needs 0F0 first");
  expect_fault("0F0 0SF0>1 0RG0<1 0B0\n1F0 1RF0<0 1B0 1SG0>0\n", "1 0 1F0", "needs 1RF0<0 first");
  expect_fault("0F0 0SF0>1 0RG0<1 0B0\n1RF0<0 1F0 1SG0>0 1B0\n", "1 2 1SG0>0", "needs 1B0 first");
  expect_fault("0F0 0SF0>1 0B0 0RG0<1\n1RF0<0 1F0 1B0 1SG0>0\n", "0 2 0B0", "needs 0RG0<1 first");
}

TEST(Validate, UpdatesComeInOrderAndShareNoGradient) {
  // Four micro-batches, two updates: 0 and 1, then 2 and 3.
  EXPECT_EQ(faults_in("0F0 0F1 0B0 0B1 0R 0O 0F2 0F3 0B2 0B3 0R 0O\n"), "");
  expect_fault("0F0 0F1 0F2 0F3 0B2 0B1 0B0 0B3 0R 0R\n", "0 4 0B2",
               "would be added to those of update 0, micro-batches 0 to 1, which are not reduced yet", 2);
  expect_fault("# updates=2\n0F0 0F1 0F2 0F3 0B0 0B2 0B1 0B3\n", "0 5 0B2",
               "would be added to those of update 0, micro-batches 0 to 1, which are not complete yet");
  expect_fault("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0R 0B3 0R\n", "0 6 0B2", "which are not reduced yet");
  EXPECT_EQ(faults_in("# versions=2\n0F0 0F1 0F2 0F3 0B0 0B1 0R 0B2 0O 0B3 0R 0O\n"), "");
  Schedule swapped = parse_schedule("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3 0O 0O\n", "test");
  EXPECT_EQ(faults_of(swapped), "");
  std::swap(swapped.lanes[0][8], swapped.lanes[0][9]);
  EXPECT_NE(faults_of(swapped).find("0 8 0O: it is number 0 of its stage, and says that it is for update 1"),
            std::string::npos);
}

TEST(Validate, VersionsOfTheWeights) {
  const std::string lanes =
      "0F0 0F1 0F2 0B0 0O 0F3 0B1 0O 0B2 0O 0B3 0O\n1F0 1F1 1B0 1O 1F2 1B1 1O 1F3 1B2 1O 1B3 1O\n";
  expect_fault(
      "# versions=3,1\n" + lanes, "1 5 1B1",
      "backward 1B1 would find version 1 of the weights, its forward used version 0: stage 1 keeps 1 "
      "version (versions= in the header)");
  EXPECT_EQ(faults_in("# versions=3,2\n" + lanes), "");
  expect_fault("# versions=1,2\n" + lanes, "0 6 0B1",
               "would find version 1 of the weights, its forward used version 0");
  expect_fault("# versions=2,2\n" + lanes, "0 8 0B2",
               "would find version 1 of the weights, its forward used version 0: stage 0 keeps 2 versions");
  expect_fault("0F0 0B0 0O 0F1 0F2 0B1 0O 0B2 0O\n", "0 7 0B2",
               "version 2 of the weights, its forward used version 1");
  expect_fault("0F0 0F1 0B0 0O 0C1 0C0 0I1 0W1 0O\n", "0 2 0B0", "needs 0C0 first");
  expect_fault("0F0 0F1 0C0 0B0 0O 0C1 0I1 0W1 0O\n", "0 5 0C1", "recompute 0C1 would find version 1");
  expect_fault("0F0 0F1 0B0 0O 0I1 0W1 0O\n", "0 4 0I1", "backward 0I1 would find version 1");
}

TEST(Validate, MemoryIsLimited) {
  EXPECT_EQ(faults_in(kGood, memory(2)), "");
  expect_fault(kGood, "0 1 0F1",
               "here the lane holds more than the limit of 1.5 micro-batches; its peak is 2", 1, memory(1.5));
  expect_fault("0F0 0F1 0I0 0I1 0W0 0W1\n1F0 1I0 1F1 1I1 1W0 1W1\n", "0 0 0F0", "limit of 0.5", 2,
               memory(0.5));
  // What waits for its weight part is held too; two stages in a lane count half each.
  expect_fault("0F0 0I0 0F1 0I1 0W0 0W1\n", "0 2 0F1", "its peak is 2", 1, memory(1));
  EXPECT_EQ(faults_in("0F0 1F0 1B0 0B0\n", memory(1)), "");
  expect_fault("0F0 1F0 1B0 0B0\n", "0 1 1F0", "its peak is 1", 1, memory(0.9));
  EXPECT_EQ(faults_in("# kind=forward\n0F0 0F1 0F2\n", memory(1)), "");
}

TEST(Validate, FaultsAreInReadingOrderAndFew) {
  std::string text = "0F0 0B0\n1F0 1B0";
  for (int i = 0; i < 50; ++i) text += " 1F0";
  const Verdict verdict = validate(parse_schedule(text + "\n", "test"));
  ASSERT_EQ(verdict.faults.size(), static_cast<size_t>(kMostFaults));
  for (int i = 0; i < kMostFaults; ++i) EXPECT_EQ(verdict.faults[static_cast<size_t>(i)].step, i + 2);
  const Verdict two = validate(parse_schedule("0F0 0F1 0B0 0B0\n1B0 1F0 1F0 1F1 1B1\n", "test"));
  ASSERT_EQ(two.faults.size(), 3U);
  EXPECT_EQ(to_string(two.faults[0].action), "0B1");
  EXPECT_EQ(two.faults[1].lane * 10 + two.faults[1].step, 3);
  EXPECT_EQ(two.faults[2].lane * 10 + two.faults[2].step, 12);
}

}  // namespace
}  // namespace troika

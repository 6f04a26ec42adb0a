#include "troika/schedule/torch_csv.h"

#include <gtest/gtest.h>

#include "schedule/many_schedules.h"
#include "support/error_of.h"
#include "troika/schedule/passes.h"

namespace troika {
namespace {

using Notes = std::vector<std::string>;

TorchSchedule import_csv(const std::string& text) { return parse_torch_csv(text, "lanes.csv"); }
std::string error_in_csv(const std::string& text) {
  return error_of([&] { import_csv(text); });
}
std::string lanes_in(const std::string& text) {
  const std::string lanes = to_text(import_csv(text).schedule);
  return lanes.substr(lanes.find('\n') + 1);
}

TEST(TorchCsv, PassesAreReadAndEmptyCellsAreBubbles) {
  const TorchSchedule read = import_csv("0F0,0F1,,,0I0,0W0,0B1\r\n,1F0,1B0,1F1,1B1,,\r\n");
  EXPECT_EQ(read.schedule, parse_schedule("0F0 0F1 0I0 0W0 0B1\n1F0 1B0 1F1 1B1\n", "text"));
  EXPECT_EQ(read.notes, Notes{});
}

TEST(TorchCsv, MessagesNameTheNextStageAndTheOneBefore) {
  const TorchSchedule read = import_csv(
      "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n"
      "1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0,1REDUCE_GRAD\n"
      "2RECV_F0,2F0,2B0,2SEND_B0,2REDUCE_GRAD\n");
  EXPECT_EQ(read.schedule, parse_schedule("0F0 0SF0>1 0RG0<1 0B0 0R\n"
                                          "1RF0<0 1F0 1SF0>2 1RG0<2 1B0 1SG0>0 1R\n"
                                          "2RF0<1 2F0 2B0 2SG0>1 2R\n",
                                          "text"));
  EXPECT_TRUE(read.schedule.stated.messages);
  EXPECT_TRUE(read.schedule.stated.reductions);
  EXPECT_FALSE(read.schedule.stated.updates);
}

TEST(TorchCsv, WhatOverlapsIsReadInOrder) {
  const TorchSchedule read = import_csv("0F0,(0F1;0B0)OVERLAP_F_B,( 0F2 ; 0I1 )OVERLAP_F_B,0W1,0B2\n");
  EXPECT_EQ(read.schedule, parse_schedule("0F0 0F1 0B0 0F2 0I1 0W1 0B2\n", "text"));
  EXPECT_EQ(read.notes, Notes{"2 OVERLAP_F_B: read as their actions one after the other"});
}

TEST(TorchCsv, WhatIsLeftOutIsNoted) {
  const TorchSchedule read =
      import_csv("0UNSHARD,0F0,0F1,0WAIT_UNSHARD,0B0,0B1,0RESHARD,0UNSHARD,0UNSHARD1\n");
  EXPECT_EQ(read.schedule, parse_schedule("0F0 0F1 0B0 0B1\n", "text"));
  EXPECT_EQ(read.notes,
            Notes{"left out: 1 RESHARD, 3 UNSHARD, 1 WAIT_UNSHARD (weights are not sharded within "
                  "a schedule here)"});
}

TEST(TorchCsv, RowsOfForwardsAreAForwardSchedule) {
  const TorchSchedule read = import_csv("0F0,0F1\n1F0,1F1\n");
  EXPECT_EQ(read.schedule.kind, Kind::forward);
  EXPECT_EQ(read.notes, Notes{"there is no backward: read as a schedule of forwards only"});
}

TEST(TorchCsv, ReductionsAreNumbered) {
  const Schedule read = import_csv("0F0,0B0,0REDUCE_GRAD,0F1,0B1,0REDUCE_GRAD\n").schedule;
  EXPECT_EQ(read.num_updates, 2);
  EXPECT_EQ(read.lanes[0].back(), (Action{Op::reduce_gradients, 0, 1}));
}

TEST(TorchCsv, QuotesMarksAndRowEndsDontMatter) {
  const std::string plain = "0F0 0B0\n";
  for (const char* text : {"0F0,0B0", "0F0,0B0\r\n\r\n \n", " 0F0 ,\t0B0 ,,\n", "\"0F0\",\"0B0\"\n",
                           "\xEF\xBB\xBF"
                           "0F0,0B0\n"}) {
    EXPECT_EQ(lanes_in(text), plain) << text;
  }
  // A row without actions is a lane all the same, but not at the end.
  EXPECT_EQ(lanes_in("\n0F0,0B0\n,,\n1F0,1B0\n\n"), "-\n0F0 0B0\n-\n1F0 1B0\n");
  EXPECT_EQ(lanes_in("0F0,0B0\n\"\"\n"), "0F0 0B0\n-\n");
}

TEST(TorchCsv, AnythingElseIsNamedWithRowAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0X1", "\"X\" is no action"},
      {"0REDUCE_GRAT",
       "\"REDUCE_GRAT\" is no action (did you mean \"REDUCE_GRAD\"?); the names are F B I W SEND_F"},
      {"0SENDF0", "\"SENDF\" is no action (did you mean \"SEND_F\"?)"},
      {"0OVERLAP_F_B", "\"OVERLAP_F_B\" is no action"},
      {"F0", "expected stage, name, micro-batch, as in 2F0 or 1SEND_F0"},
      {"0F-1", "expected stage, name, micro-batch"},
      {"-1F0", "expected stage, name, micro-batch"},
      {"0F0>1", "expected stage, name, micro-batch"},
      {"0f0", "expected stage, name, micro-batch"},
      {"0F 0", "expected stage, name, micro-batch"},
      {"99999999999F0", "expected stage, name, micro-batch"},
      {"2147483647SEND_F0", "expected stage, name, micro-batch"},
      {"\"", "expected stage, name, micro-batch"},
      {"0F", "expected a micro-batch after F"},
      {"0SEND_F", "expected a micro-batch after SEND_F"},
      {"0REDUCE_GRAD1", "expected no micro-batch after REDUCE_GRAD"},
      {"0SEND_B0", "stage 0 has no stage before it"},
      {"0RECV_F0", "stage 0 has no stage before it"},
      {"(0F0;0B0)", "expected two actions that overlap, as in (0F1;3B0)OVERLAP_F_B"},
      {"(0F0;0B0", "expected two actions that overlap"},
      {"(0F0;0B0)OVERLAP", "expected two actions that overlap"},
      {"()OVERLAP_F_B", "expected stage, name, micro-batch"},
      {"((0F0;0B0)OVERLAP_F_B;0F1)OVERLAP_F_B", "expected two actions that overlap"},
      {"100F0", "there are 3 actions in all, too few for a stage 100"},
      {"0F2147483647", "expected a smaller number of the micro-batch"},
  };
  for (const auto& [cell, reason] : cases) {
    const std::string error = error_in_csv("0F0,0B0\n,," + cell + ",\n");
    EXPECT_EQ(error.find("lanes.csv: row 2, column 3: \"" + cell + "\": " + reason), 0U) << error;
  }
  for (const std::string text : {"", "\r\n\n", " "}) {
    EXPECT_EQ(error_in_csv(text).find("lanes.csv: there are no rows"), 0U);
  }
  EXPECT_EQ(error_in_csv(std::string("0F0,0\0F1\n", 9)).find("lanes.csv: row 1, column 2: \"0\\x00F1\""), 0U);
}

TEST(TorchCsv, IsWrittenAsItIsRead) {
  const std::string text =
      "0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n\"\"\n";
  Notes notes = {"old"};
  EXPECT_EQ(to_torch_csv(import_csv(text).schedule, &notes), text);
  EXPECT_EQ(notes, Notes{});
  EXPECT_EQ(to_torch_csv(import_csv(text).schedule), text);
}

TEST(TorchCsv, WhatItHasNoNameForIsNoted) {
  Notes notes;
  const Schedule step = whole_step(with_recompute(parse_schedule("0F0 0B0\n1F0 1B0\n", "text"), {1}));
  EXPECT_EQ(to_torch_csv(step, &notes),
            "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n");
  EXPECT_EQ(notes, (Notes{"left out: 2 L (load); this CSV has no name for it",
                          "left out: 1 C (recompute); this CSV has no name for it",
                          "left out: 2 O (optimizer step); this CSV has no name for it"}));
  to_torch_csv(make_schedule("pipedream", {.lanes = 2, .micro_batches = 3, .times = {}, .memory_limit = {}}),
               &notes);
  EXPECT_EQ(notes, (Notes{"left out: 6 O (optimizer step); this CSV has no name for it",
                          "left out: that stages hold several versions of their weights",
                          "left out: that the window has 3 updates"}));
}

TEST(TorchCsv, OnlyAChainCanBeWritten) {
  const auto written = [](const std::string& edges) {
    const Schedule schedule = parse_schedule("# edges=" + edges + "\n0F0 0B0\n1F0 1B0\n2F0 2B0\n", "text");
    return error_of([&] { to_torch_csv(schedule); });
  };
  EXPECT_EQ(written("0>1,1>2"), "no error");
  EXPECT_EQ(written("0>1,0>2,1>2").find("the edge 0>2 can't be written as CSV"), 0U);
  EXPECT_EQ(written("0>1").find("there is no edge 1>2, which can't be written as CSV"), 0U);
}

TEST(TorchCsv, AllChainsComeBackWhereNothingIsLeftOut) {
  int same = 0, left_out = 0;
  for (const auto& [name, compute] : many_schedules()) {
    if (compute.edges != chain_edges(compute.num_stages())) continue;
    const Schedule split = with_split_backward(compute);
    for (const Schedule& schedule :
         {compute, split, with_messages(compute), with_reductions(with_messages(split)),
          forward_only(compute), whole_step(compute)}) {
      Notes notes;
      const Schedule back = import_csv(to_torch_csv(schedule, &notes)).schedule;
      if (notes.empty()) {
        ++same;
        ASSERT_EQ(back, schedule) << name;
      } else {
        ++left_out;
        ASSERT_NE(back, schedule) << name << ": " << notes.front();
      }
    }
  }
  EXPECT_GT(same, 500);
  EXPECT_GT(left_out, 100);
}

}  // namespace
}  // namespace troika

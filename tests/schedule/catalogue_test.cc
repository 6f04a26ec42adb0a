#include "troika/schedule/catalogue.h"

#include <gtest/gtest.h>

#include <set>

#include "support/error_of.h"
#include "troika/schedule/schedule_text.h"

namespace troika {
namespace {

using Table = std::vector<std::string>;

// One string per lane.
Table table(const Schedule& schedule) {
  Table rows;
  for (const Lane& lane : schedule.lanes) {
    std::string row;
    for (const Action& action : lane) row += (row.empty() ? "" : " ") + to_string(action);
    rows.push_back(row);
  }
  return rows;
}

Table table(std::string_view name, int lanes, int micro_batches, int chunks = 0) {
  return table(make_schedule(name, {.lanes = lanes, .micro_batches = micro_batches, .chunks = chunks}));
}

TEST(Catalogue, Naive) {
  EXPECT_EQ(table("naive", 3, 2), (Table{
                                      "0F0 0B0 0F1 0B1",
                                      "1F0 1B0 1F1 1B1",
                                      "2F0 2B0 2F1 2B1",
                                  }));
}

TEST(Catalogue, GPipe) {
  EXPECT_EQ(table("gpipe", 3, 4), (Table{
                                      "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3",
                                      "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3",
                                      "2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3",
                                  }));
}

TEST(Catalogue, OneForwardOneBackward) {
  EXPECT_EQ(table("1f1b", 3, 4), (Table{
                                     "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
                                     "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
                                     "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
                                 }));
  EXPECT_EQ(table("1f1b", 4, 2), (Table{
                                     "0F0 0F1 0B0 0B1",
                                     "1F0 1F1 1B0 1B1",
                                     "2F0 2F1 2B0 2B1",
                                     "3F0 3B0 3F1 3B1",
                                 }));
}

TEST(Catalogue, Interleaved) {
  EXPECT_EQ(table("interleaved-1f1b", 2, 4),
            (Table{
                "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
                "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
            }));
  // Five micro-batches are groups of two, two and one.
  EXPECT_EQ(table("interleaved-1f1b", 2, 5),
            (Table{
                "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 0F4 2B2 2B3 2F4 0B2 0B3 2B4 0B4",
                "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1F4 1B2 1B3 3F4 3B4 1B4",
            }));
  EXPECT_EQ(table("interleaved-1f1b", 4, 9, 1), table("1f1b", 4, 9));
}

TEST(Catalogue, LoopedBreadthFirst) {
  EXPECT_EQ(table("looped-bfs", 2, 3), (Table{
                                           "0F0 0F1 0F2 2F0 2F1 2F2 2B0 2B1 2B2 0B0 0B1 0B2",
                                           "1F0 1F1 1F2 3F0 3F1 3F2 3B0 3B1 3B2 1B0 1B1 1B2",
                                       }));
  EXPECT_EQ(table("looped-bfs", 3, 5, 1), table("gpipe", 3, 5));
}

TEST(Catalogue, ZeroBubble) {
  EXPECT_EQ(table("zb-h1", 3, 4), (Table{
                                      "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3",
                                      "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3",
                                      "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3",
                                  }));
  EXPECT_EQ(table("zb-h2", 3, 5), (Table{
                                      "0F0 0F1 0F2 0F3 0F4 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4",
                                      "1F0 1F1 1F2 1I0 1F3 1I1 1F4 1I2 1W0 1I3 1W1 1I4 1W2 1W3 1W4",
                                      "2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2F4 2I4 2W0 2W1 2W2 2W3 2W4",
                                  }));
}

TEST(Catalogue, DualPipeV) {
  EXPECT_EQ(table("dualpipe-v", 2, 4),
            (Table{
                "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3",
                "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3",
            }));
  // Too few for the rule: as with four, without micro-batch 3.
  EXPECT_EQ(table("dualpipe-v", 2, 3), (Table{
                                           "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3B1 3F2 0B0 3B2 0B1 0I2 0W2",
                                           "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 2B1 1B1 2B2 1B2",
                                       }));
}

TEST(Catalogue, PipeDream) {
  EXPECT_EQ(table("pipedream", 3, 4), (Table{
                                          "0F0 0F1 0F2 0B0 0O 0F3 0B1 0O 0B2 0O 0B3 0O",
                                          "1F0 1F1 1B0 1O 1F2 1B1 1O 1F3 1B2 1O 1B3 1O",
                                          "2F0 2B0 2O 2F1 2B1 2O 2F2 2B2 2O 2F3 2B3 2O",
                                      }));
  const Schedule schedule = make_schedule("pipedream", {.lanes = 3, .micro_batches = 4});
  EXPECT_EQ(schedule.max_versions, (std::vector{3, 2, 1}));
  EXPECT_EQ(schedule.num_updates, 4);
  EXPECT_EQ(schedule.lanes[0].back(), (Action{Op::optimizer_step, 0, 3}));
}

TEST(Catalogue, PipeDreamDoubleBuffered) {
  const Schedule schedule = make_schedule("pipedream-2bw", {.lanes = 2, .micro_batches = 2});
  EXPECT_EQ(table(schedule), (Table{
                                 "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0O 0F4 0B3 0F5 0B4 0B5 0O 0O",
                                 "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1O 1F4 1B4 1F5 1B5 1O 1O",
                             }));
  EXPECT_EQ(schedule.max_versions, (std::vector{2, 1}));
  EXPECT_EQ(schedule.num_micro_batches, 6);
  EXPECT_EQ(schedule.num_updates, 3);
  EXPECT_EQ(make_schedule("pipedream-2bw", {.lanes = 2, .micro_batches = 2, .updates = 5}).num_updates, 5);
}

TEST(Catalogue, EntriesAreComplete) {
  std::set<std::string_view> names;
  for (const CatalogueEntry& entry : catalogue()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    for (const std::string_view text :
         {entry.name, entry.summary, entry.bubble, entry.memory, entry.use, entry.paper}) {
      EXPECT_FALSE(text.empty()) << entry.name;
    }
    EXPECT_NE(entry.make, nullptr) << entry.name;
    EXPECT_EQ(&catalogue_entry(entry.name), &entry);
  }
}

TEST(Catalogue, NumbersThatDontWorkAreNamed) {
  const auto error = [](std::string_view name, const ScheduleRequest& request) {
    return error_of([&] { make_schedule(name, request); });
  };
  EXPECT_NE(error("1f1", {}).find("did you mean \"1f1b\""), std::string::npos);
  EXPECT_EQ(error("1f1b", {.lanes = 0}), "stages: expected a whole number from 1, got 0");
  EXPECT_EQ(error("1f1b", {.micro_batches = -3}), "micro-batches: expected a whole number from 1, got -3");
  EXPECT_EQ(error("looped-bfs", {.chunks = -1}), "chunks: expected a whole number from 1, got -1");
  EXPECT_EQ(error("pipedream-2bw", {.updates = -1}), "updates: expected a whole number from 1, got -1");
  EXPECT_EQ(error("1f1b", {.chunks = 2}),
            "schedule 1f1b has 1 stage per lane, and 2 chunks were asked for: leave --chunks out");
  EXPECT_EQ(error("dualpipe-v", {.chunks = 3}),
            "schedule dualpipe-v has 2 stages per lane, and 3 chunks were asked for: leave --chunks out");
  EXPECT_NE(
      error("gpipe", {.lanes = 1'000'000, .micro_batches = 1'000'000}).find("expected at most 20,000,000"),
      std::string::npos);
  EXPECT_EQ(error("gpipe", {.times = {.weight_s = -1}}), "weight: expected a time, 0 or more, got -1");
  EXPECT_EQ(
      error("pipedream-2bw", {.lanes = 4, .micro_batches = 3}),
      "pipedream-2bw of 4 stages: expected at least 4 micro-batches per global batch, as many as are on "
      "their way at once, got 3 (1f1b and pipedream take any number)");
  EXPECT_THROW(make_schedule("1f1b", {.lanes = 0}), UsageError);
  EXPECT_THROW(make_schedule("pipedream-2bw", {.lanes = 2}), UsageError);
}

TEST(Catalogue, ReadsAsItIsWritten) {
  for (const CatalogueEntry& entry : catalogue()) {
    for (const int micro_batches : {4, 7}) {
      const Schedule schedule = make_schedule(entry.name, {.lanes = 4, .micro_batches = micro_batches});
      EXPECT_EQ(parse_schedule(to_text(schedule), "test"), schedule) << entry.name;
    }
  }
}

}  // namespace
}  // namespace troika

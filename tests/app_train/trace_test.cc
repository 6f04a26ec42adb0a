// The trace of a real step in the form of trace viewers: whole, on one time axis, with an arrow per message.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/command.h"
#include "support/temporary_folder.h"

namespace troika {
namespace {

using Json = nlohmann::json;

int64_t nanoseconds(const Json& micros) { return std::llround(micros.get<double>() * 1000); }

class StepTrace : public testing::Test {
 protected:
  StepTrace() {
    std::ofstream csv(folder_ / "data.csv");
    csv << "x,z,y\n";
    for (int i = 0; i < 300; ++i)
      csv << std::sin(i) << ',' << std::cos(2 * i) << ',' << std::sin(i + 1) << '\n';
    csv.close();
    std::ofstream(folder_ / "recipe.toml") << "[data]\npath = \"data\"\ntarget = \"y\"\n[model]\nwidth = 8\n"
                                              "layers = 4\n[train]\nsteps = 22\nbatch = 32\n";
    const CommandResult packed = run_troika({"pack", "data.csv", "-o", "data", "--quiet"}, folder_.path());
    EXPECT_EQ(packed.status, 0) << packed.err;
  }

  std::map<std::string, std::vector<Json>> events_of(const std::vector<std::string>& layout) {
    std::vector<std::string> arguments{"train",   "recipe.toml", "--overwrite",
                                       "--quiet", "--trace",     "step.json"};
    arguments.insert(arguments.end(), layout.begin(), layout.end());
    const CommandResult trained = run_troika(arguments, folder_.path());
    EXPECT_EQ(trained.status, 0) << trained.err;
    std::ifstream file(folder_ / "step.json");
    std::map<std::string, std::vector<Json>> by_phase;
    const Json whole = Json::parse(file);
    for (const Json& event : whole.at("traceEvents")) by_phase[event.at("ph")].push_back(event);
    return by_phase;
  }

  TemporaryFolder folder_;
};

std::vector<std::string> thread_names(const std::vector<Json>& metadata) {
  std::vector<std::string> names;
  for (const Json& event : metadata) {
    if (event.at("name") == "thread_name") names.push_back(event.at("args").at("name"));
  }
  return names;
}

/// The slice that a viewer binds an arrow's end to: the innermost around it. Here none is within another.
Json slice_around(const std::vector<Json>& slices, const Json& end) {
  Json found;
  const int64_t at = nanoseconds(end.at("ts"));
  for (const Json& slice : slices) {
    const int64_t start = nanoseconds(slice.at("ts"));
    if (slice.at("tid") != end.at("tid") || at < start || at >= start + nanoseconds(slice.at("dur")))
      continue;
    EXPECT_TRUE(found.is_null()) << end << " stands in two slices";
    found = slice;
  }
  EXPECT_FALSE(found.is_null()) << end << " stands in no slice";
  return found;
}

/// Of lanes with one stage each: rank = data * lanes + stage.
void expect_arrows(std::map<std::string, std::vector<Json>>& events, int ranks, int lanes,
                   int micro_batches) {
  const auto messages = static_cast<size_t>(ranks - ranks / lanes) * static_cast<size_t>(2 * micro_batches);
  ASSERT_EQ(events["s"].size(), messages);
  ASSERT_EQ(events["f"].size(), messages);
  std::map<int, Json> starts;
  for (const Json& start : events["s"]) EXPECT_TRUE(starts.emplace(start.at("id"), start).second) << start;
  std::set<std::string> joined;
  for (const Json& end : events["f"]) {
    ASSERT_TRUE(starts.contains(end.at("id"))) << end;
    const Json start = starts.at(end.at("id"));
    EXPECT_EQ(end.at("bp"), "e");
    EXPECT_EQ(end.at("cat"), start.at("cat"));
    EXPECT_EQ(end.at("name"), start.at("name"));
    EXPECT_LT(nanoseconds(start.at("ts")), nanoseconds(end.at("ts")));
    const Json send = slice_around(events["X"], start), receive = slice_around(events["X"], end);
    if (send.is_null() || receive.is_null()) return;
    const Json from = send.at("args"), to = receive.at("args");
    const std::string what = from.at("op").get<std::string>().substr(std::string("send ").size());
    EXPECT_EQ(from.at("op"), "send " + what);
    EXPECT_EQ(to.at("op"), "receive " + what);
    EXPECT_EQ(from.at("peer"), to.at("stage"));
    EXPECT_EQ(from.at("stage"), to.at("peer"));
    EXPECT_EQ(from.at("micro_batch"), to.at("micro_batch"));
    EXPECT_EQ(send.at("tid").get<int>() / lanes, receive.at("tid").get<int>() / lanes) << "of one pipeline";
    EXPECT_EQ(send.at("tid").get<int>() % lanes, from.at("stage"));
    EXPECT_EQ(receive.at("tid").get<int>() % lanes, to.at("stage"));
    joined.insert(send.at("name").dump() + send.at("tid").dump());
  }
  EXPECT_EQ(joined.size(), messages) << "each message has an arrow of its own";
}

TEST_F(StepTrace, APipelinesMessagesAreArrows) {
  auto events = events_of({"--mesh", "pipeline=3", "--schedule", "zb-h1", "--micro-batches", "4"});
  EXPECT_EQ(thread_names(events["M"]),
            (std::vector<std::string>{"rank 0 · lane 0", "rank 1 · lane 1", "rank 2 · lane 2"}));
  expect_arrows(events, 3, 3, 4);
  std::map<std::string, int> passes;
  for (const Json& slice : events["X"]) {
    if (slice.at("cat") == "pass") ++passes[slice.at("args").at("op")];
  }
  EXPECT_EQ(passes.at("forward"), 12);
  EXPECT_EQ(passes.at("backward, input part"), 12);
  EXPECT_EQ(passes.at("backward, weight part"), 12);
  EXPECT_EQ(events["i"].size(), 0u) << "a real message takes time";
}

TEST_F(StepTrace, DataRanksShareNoArrow) {
  auto events = events_of({"--mesh", "data=2,pipeline=2", "--schedule", "1f1b", "--micro-batches", "4"});
  EXPECT_EQ(thread_names(events["M"]),
            (std::vector<std::string>{"rank 0 · lane 0, data 0", "rank 1 · lane 1, data 0",
                                      "rank 2 · lane 0, data 1", "rank 3 · lane 1, data 1"}));
  expect_arrows(events, 4, 2, 4);
}

TEST_F(StepTrace, IsTitledByTheStepsThatItShows) {
  const auto title_of = [&](const std::string& schedule) {
    const auto events = events_of({"--mesh", "pipeline=2", "--schedule", schedule});
    for (const Json& event : events.at("M")) {
      if (event.at("name") == "process_name") return event.at("args").at("name").get<std::string>();
    }
    return std::string();
  };
  EXPECT_EQ(title_of("1f1b"), "one training step, 2 ranks");
  // It drains after each epoch of 8 steps, and step 20 of the 22 is shown.
  EXPECT_EQ(title_of("pipedream"), "a window of 6 training steps, 2 ranks");
}

TEST_F(StepTrace, WithoutAPipelineThereAreNone) {
  auto events = events_of({"--ranks", "2"});
  EXPECT_EQ(thread_names(events["M"]), (std::vector<std::string>{"rank 0 · data 0", "rank 1 · data 1"}));
  EXPECT_TRUE(events["s"].empty());
  EXPECT_FALSE(events["X"].empty());
}

}  // namespace
}  // namespace troika

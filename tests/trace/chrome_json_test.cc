#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "trace/traces.h"
#include "troika/base/error.h"
#include "troika/trace/draw.h"

namespace troika {
namespace {

using Json = nlohmann::json;

std::vector<Json> events_of(const std::string& text, const std::string& phase) {
  std::vector<Json> out;
  const Json whole = Json::parse(text);
  for (const Json& event : whole.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 1);
    if (event.at("ph") == phase) out.push_back(event);
  }
  return out;
}

Json only(const std::vector<Json>& events, const std::string& name) {
  Json found;
  for (const Json& event : events) {
    if (event.at("name") != name) continue;
    EXPECT_TRUE(found.is_null()) << name << " twice";
    found = event;
  }
  EXPECT_FALSE(found.is_null()) << "no " << name;
  return found;
}

// The forward's activation and the backward's gradient between two ranks, with messages that take no time.
Trace two_ranks_with_messages() {
  Trace trace{2, {}};
  const auto add = [&](int rank, const char* action, double start, double end) {
    trace.spans.push_back({rank, parse_action(action), start, end});
  };
  add(0, "0F0", 0, 1);
  add(0, "0SF0>1", 1, 1);
  add(0, "0F1", 1, 2);
  add(1, "1RF0<0", 1.5, 1.5);
  add(1, "1F0", 1.5, 2.5);
  add(1, "1B0", 2.5, 4.5);
  add(1, "1SG0>0", 4.5, 4.5);
  add(0, "0RG0<1", 5, 5);
  add(0, "0B0", 5, 7);
  return trace;
}

TEST(ChromeJson, ACompleteEventPerPass) {
  const std::string text = chrome_json(one_f_one_b(2, 3), "1f1b");
  const std::vector<Json> passes = events_of(text, "X");
  EXPECT_EQ(passes.size(), 12u);
  const Json pass = only(passes, "1B2");
  EXPECT_EQ(pass.at("cat"), "pass");
  EXPECT_EQ(pass.at("tid"), 1);
  EXPECT_EQ(pass.at("ts"), 8e6);
  EXPECT_EQ(pass.at("dur"), 2e6);
  EXPECT_EQ(pass.at("args"), Json({{"op", "backward"}, {"stage", 1}, {"micro_batch", 2}}));
  EXPECT_EQ(only(passes, "0F0").at("tid"), 0);
  EXPECT_TRUE(events_of(text, "s").empty());
}

TEST(ChromeJson, NamesAreWrittenAsJsonWantsThem) {
  const std::string name = "a \"b\" \\ \n \x01 \xFF", lane = "la\"ne";
  const std::string text = chrome_json(one_f_one_b(2, 1), name, {.lane_name = lane});
  const std::vector<Json> names = events_of(text, "M");
  EXPECT_EQ(only(names, "process_name").at("args").at("name"), "a \"b\" \\ \n \x01 \xEF\xBF\xBD");
  std::vector<std::string> threads;
  for (const Json& event : names) {
    if (event.at("name") == "thread_name") threads.push_back(event.at("args").at("name"));
    if (event.at("name") == "thread_sort_index") {
      EXPECT_EQ(event.at("args").at("sort_index"), event.at("tid"));
    }
  }
  EXPECT_EQ(threads, (std::vector<std::string>{"la\"ne 0", "la\"ne 1"}));
}

TEST(ChromeJson, ArrowsGoFromTheMakerToTheUser) {
  const std::string text = chrome_json(two_ranks_with_messages(), "t");
  const std::vector<Json> starts = events_of(text, "s"), ends = events_of(text, "f");
  ASSERT_EQ(starts.size(), 2u);
  ASSERT_EQ(ends.size(), 2u);
  const Json activation = only(starts, "activation 0 from stage 0 to 1"),
             gradient = only(starts, "gradient 0 from stage 1 to 0");
  EXPECT_EQ(activation.at("tid"), 0);
  EXPECT_EQ(activation.at("ts"), 999999.999);  // within 0F0, not on its edge, where 0F1 begins
  EXPECT_EQ(gradient.at("tid"), 1);
  EXPECT_EQ(gradient.at("ts"), 4499999.999);
  const Json activation_end = only(ends, "activation 0 from stage 0 to 1"),
             gradient_end = only(ends, "gradient 0 from stage 1 to 0");
  EXPECT_EQ(activation_end.at("tid"), 1);
  EXPECT_EQ(activation_end.at("ts"), 1.5e6);
  EXPECT_EQ(activation_end.at("bp"), "e");
  EXPECT_EQ(gradient_end.at("tid"), 0);
  EXPECT_EQ(gradient_end.at("ts"), 5e6);
  EXPECT_EQ(activation.at("id"), activation_end.at("id"));
  EXPECT_EQ(gradient.at("id"), gradient_end.at("id"));
  EXPECT_NE(activation.at("id"), gradient.at("id"));
  EXPECT_EQ(activation.at("cat"), activation_end.at("cat"));
  EXPECT_EQ(events_of(text, "i").size(), 4u);
  EXPECT_EQ(events_of(text, "X").size(), 5u);
}

TEST(ChromeJson, MessagesThatTakeTimeAreSlicesAndArrowsJoinThem) {
  Trace trace = two_ranks_with_messages();
  trace.spans[1].end_s = 1.25;
  trace.spans[2].start_s = 1.25;
  trace.spans[3].start_s = 1.125;
  const std::string text = chrome_json(trace, "t");
  EXPECT_EQ(events_of(text, "i").size(), 2u);
  const Json send = only(events_of(text, "X"), "0SF0>1"), receive = only(events_of(text, "X"), "1RF0<0");
  EXPECT_EQ(send.at("cat"), "message");
  EXPECT_EQ(send.at("args").at("peer"), 1);
  EXPECT_EQ(receive.at("dur"), 375000);
  EXPECT_EQ(only(events_of(text, "s"), "activation 0 from stage 0 to 1").at("ts"), send.at("ts"));
  EXPECT_EQ(only(events_of(text, "f"), "activation 0 from stage 0 to 1").at("ts"), 1499999.999);
}

TEST(ChromeJson, OnlyMessagesWithBothEndsHaveArrows) {
  Trace trace = two_ranks_with_messages();
  trace.spans.erase(trace.spans.begin() + 3);  // the receive of the activation
  EXPECT_EQ(events_of(chrome_json(trace, "t"), "s").size(), 1u);
  EXPECT_EQ(events_of(chrome_json(trace, "t"), "f").size(), 1u);
}

// Two copies of the pipeline: ranks 0 and 1 have stage 0, ranks 2 and 3 stage 1.
TEST(ChromeJson, DataPeersSendAmongThemselves) {
  Trace trace{4, {}};
  for (const Span& span : two_ranks_with_messages().spans) {
    trace.spans.push_back({2 * span.rank, span.action, span.start_s, span.end_s});
    trace.spans.push_back({2 * span.rank + 1, span.action, span.start_s + 10, span.end_s + 10});
  }
  const std::string text = chrome_json(trace, "t");
  const std::vector<Json> starts = events_of(text, "s"), ends = events_of(text, "f");
  ASSERT_EQ(starts.size(), 4u);
  for (const Json& start : starts) {
    for (const Json& end : ends) {
      if (start.at("id") != end.at("id")) continue;
      EXPECT_EQ(start.at("tid").get<int>() % 2, end.at("tid").get<int>() % 2);
      EXPECT_LT(start.at("ts"), end.at("ts"));
    }
  }
}

// Rank 2d + l is lane l of pipeline d. The first one's send isn't in the trace: the second's isn't its own.
TEST(ChromeJson, OnAMeshNoArrowLeavesItsPipeline) {
  Trace trace{4, {}};
  for (const Span& span : two_ranks_with_messages().spans) {
    if (span.action != parse_action("0SF0>1")) trace.spans.push_back(span);
    trace.spans.push_back({2 + span.rank, span.action, span.start_s + 10, span.end_s + 10});
  }
  const std::string text = chrome_json(trace, "t", {.mesh = Mesh{2, 2, 1}});
  const std::vector<Json> starts = events_of(text, "s"), ends = events_of(text, "f");
  ASSERT_EQ(starts.size(), 3u);
  ASSERT_EQ(ends.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(starts[i].at("id"), ends[i].at("id"));
    EXPECT_EQ(starts[i].at("tid").get<int>() / 2, ends[i].at("tid").get<int>() / 2);
  }
  std::vector<std::string> threads;
  for (const Json& event : events_of(text, "M")) {
    if (event.at("name") == "thread_name") threads.push_back(event.at("args").at("name"));
  }
  EXPECT_EQ(threads, (std::vector<std::string>{"rank 0 · lane 0, data 0", "rank 1 · lane 1, data 0",
                                               "rank 2 · lane 0, data 1", "rank 3 · lane 1, data 1"}));
  EXPECT_DEATH(chrome_json(trace, "t", {.mesh = Mesh{1, 2, 1}}), "mesh");
}

TEST(ChromeJson, HasTheProfilersKeys) {
  const Json whole = Json::parse(chrome_json(one_f_one_b(2, 1), "a step"));
  EXPECT_EQ(whole.at("schemaVersion"), 1);
  EXPECT_EQ(whole.at("traceName"), "a step");
  EXPECT_EQ(whole.at("displayTimeUnit"), "ms");
  EXPECT_EQ(whole.at("distributedInfo").at("world_size"), 2);
}

TEST(ChromeJson, MemoryIsACounterPerRank) {
  Trace trace = one_f_one_b(2, 1);
  trace.memory = {{{0, 1048576}, {6, 0}}, {{1, 0.5}}};
  const std::vector<Json> levels = events_of(chrome_json(trace, "t"), "C");
  ASSERT_EQ(levels.size(), 3u);
  EXPECT_EQ(levels[0].at("name"), "memory of rank 0");
  EXPECT_EQ(levels[0].at("args").at("bytes"), 1048576);
  EXPECT_EQ(levels[1].at("ts"), 6e6);
  EXPECT_EQ(levels[2].at("name"), "memory of rank 1");
  EXPECT_EQ(levels[2].at("args").at("bytes"), 0.5);
}

// The viewers' rule: slices of one thread are apart or within each other. Times that are no whole
// nanoseconds.
TEST(ChromeJson, SlicesOfAThreadNestOrAreApart) {
  Trace trace{2, {}};
  double at = 0;
  for (int i = 0; i < 3000; ++i) {
    const double length = (1 + i % 7) * 1e-9 / 3;
    trace.spans.push_back({0, {Op::forward, 0, i}, at, at + length});
    if (i % 3 == 0) trace.spans.push_back({0, {Op::backward, 0, i}, at + length / 4, at + length / 2});
    at += length;
    // On rank 1 each overlaps the next by a third.
    trace.spans.push_back({1, {Op::forward, 1, i}, i * 1e-3, i * 1e-3 + 1.5e-3});
  }
  const std::vector<Json> slices = events_of(chrome_json(trace, "t"), "X");
  EXPECT_EQ(slices.size(), trace.spans.size());
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> threads;
  const auto nanoseconds = [](const Json& micros) { return std::llround(micros.get<double>() * 1000); };
  for (const Json& slice : slices) {
    const int64_t start = nanoseconds(slice.at("ts"));
    threads[slice.at("tid")].emplace_back(start, start + nanoseconds(slice.at("dur")));
  }
  EXPECT_EQ(threads.size(), 3u);
  for (auto& [thread, spans] : threads) {
    std::vector<int64_t> open;
    for (const auto& [start, end] : spans) {
      while (!open.empty() && open.back() <= start) open.pop_back();
      if (!open.empty()) {
        ASSERT_LE(end, open.back()) << "thread " << thread;
      }
      open.push_back(end);
    }
  }
}

TEST(ChromeJson, NothingIsFineAndAgesAreRefused) {
  for (const Trace& trace : {Trace{0, {}}, Trace{3, {}}, Trace{1, {{0, {Op::forward, 0, 0}, 0, 0}}}}) {
    EXPECT_TRUE(Json::accept(chrome_json(trace, "")));
  }
  EXPECT_THROW(chrome_json(Trace{1, {{0, {Op::forward, 0, 0}, 0, 1e12}}}, "t"), Error);
  EXPECT_DEATH(chrome_json(Trace{1, {{2, {Op::forward, 0, 0}, 0, 1}}}, "t"), "rank 2 of 1");
}

}  // namespace
}  // namespace troika

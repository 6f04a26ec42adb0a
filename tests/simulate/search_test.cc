// The search against what each schedule says by itself.
#include "troika/simulate/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "troika/base/error.h"

namespace troika {
namespace {

const Candidate& named(const SearchResult& result, std::string_view name) {
  return *std::ranges::find_if(result.candidates, [&](const Candidate& c) { return c.entry->name == name; });
}

std::string_view best_of(const SearchResult& result) {
  return result.best < 0 ? "none" : result.candidates[static_cast<size_t>(result.best)].entry->name;
}

SearchRequest request_of(int lanes, int micro_batches) {
  SearchRequest request;
  request.lanes = lanes;
  request.micro_batches = micro_batches;
  return request;
}

TEST(Search, EveryScheduleDoesTheSameWork) {
  SearchRequest request = request_of(4, 8);
  request.times = {.forward_s = 3, .input_s = 2, .weight_s = 1.5, .message_s = 0.25};
  const SearchResult result = search_schedules(request);
  ASSERT_EQ(result.candidates.size(), catalogue().size());
  for (const Candidate& each : result.candidates) {
    ASSERT_EQ(each.refused, "") << each.entry->name;
    // What a lane is busy with: its share of 8 micro-batches, however it is cut and however long the window.
    const Summary& summary = each.summary;
    EXPECT_NEAR(summary.cost_s * (1 - summary.bubble_rate), 8 * 6.5, 1e-9) << each.entry->name;
    EXPECT_NEAR(summary.makespan_s * (1 - summary.bubble_rate_makespan), 8 * 6.5, 1e-9) << each.entry->name;
  }
}

TEST(Search, TheBestIsTheFastestThatIsSynchronousAndFits) {
  for (const bool overlap : {false, true}) {
    for (const std::optional<double> limit : {std::optional<double>(), std::optional<double>(4)}) {
      SearchRequest request = request_of(4, 12);
      request.times = {.forward_s = 1.25, .input_s = 1.5, .weight_s = 1, .message_s = 0.125};
      request.steps_overlap = overlap;
      request.memory_limit = limit;
      const SearchResult result = search_schedules(request);
      ASSERT_GE(result.best, 0);
      const Candidate& best = result.candidates[static_cast<size_t>(result.best)];
      EXPECT_FALSE(best.entry->asynchronous);
      const auto time = [&](const Candidate& c) { return overlap ? c.summary.cost_s : c.summary.makespan_s; };
      for (const Candidate& each : result.candidates) {
        if (!each.refused.empty()) continue;
        EXPECT_EQ(each.fits, !limit || each.peak_held <= *limit) << each.entry->name;
        if (!each.fits || each.entry->asynchronous) continue;
        EXPECT_LE(time(best), time(each) * (1 + 1e-9)) << best.entry->name << ", " << each.entry->name;
      }
    }
  }
}

TEST(Search, UnitTimesAreKnown) {
  const SearchResult alone = search_schedules(request_of(4, 8));
  EXPECT_DOUBLE_EQ(named(alone, "gpipe").summary.makespan_s, 33);
  EXPECT_DOUBLE_EQ(named(alone, "1f1b").summary.makespan_s, 33);
  EXPECT_DOUBLE_EQ(named(alone, "1f1b").peak_held, 4);
  EXPECT_DOUBLE_EQ(named(alone, "gpipe").peak_held, 8);
  EXPECT_DOUBLE_EQ(named(alone, "zb-h1").summary.cost_s, 27);
  EXPECT_DOUBLE_EQ(named(alone, "zb-h2").summary.cost_s, 24);
  EXPECT_DOUBLE_EQ(named(alone, "zb-h2").summary.makespan_s, 27);
  // Two chunks a lane, each of half the lane's time: (8 * 2 + 3) * 3 / 2.
  EXPECT_DOUBLE_EQ(named(alone, "interleaved-1f1b").summary.makespan_s, 28.5);

  // zb-h2's cost is only reached where steps overlap; then nothing is faster.
  SearchRequest request = request_of(4, 8);
  request.steps_overlap = true;
  const SearchResult overlapping = search_schedules(request);
  EXPECT_DOUBLE_EQ(overlapping.candidates[static_cast<size_t>(overlapping.best)].summary.cost_s, 24);
}

TEST(Search, TiesGoToLessMemoryThenToTheFirstOfTheCatalogue) {
  // One lane: nothing can wait, every synchronous schedule takes the same time.
  const SearchResult one = search_schedules(request_of(1, 4));
  ASSERT_GE(one.best, 0);
  const Candidate& best = one.candidates[static_cast<size_t>(one.best)];
  EXPECT_DOUBLE_EQ(best.summary.makespan_s, 12);
  for (const Candidate& each : one.candidates) {
    if (!each.refused.empty() || each.entry->asynchronous) continue;
    EXPECT_NEAR(each.summary.makespan_s, 12, 1e-9) << each.entry->name;
    EXPECT_LE(best.peak_held, each.peak_held) << each.entry->name;
    if (each.peak_held == best.peak_held) {
      EXPECT_LE(best.entry, each.entry) << each.entry->name;
    }
  }
}

TEST(Search, EqualTimesAreInTheOrderOfTheirMemory) {
  const SearchResult result = search_schedules(request_of(4, 8));
  EXPECT_DOUBLE_EQ(named(result, "gpipe").summary.makespan_s, named(result, "1f1b").summary.makespan_s);
  EXPECT_LT(&named(result, "1f1b"), &named(result, "gpipe"));  // the catalogue has them the other way round
}

TEST(Search, TheFastestMayBeAsynchronousButIsNotTaken) {
  SearchRequest request = request_of(4, 4);
  request.updates = 50;
  const SearchResult result = search_schedules(request);
  EXPECT_EQ(result.candidates.front().entry->name, "pipedream-2bw");
  EXPECT_GT(result.best, 0);
}

TEST(Search, OverlapComparesCosts) {
  SearchRequest request = request_of(4, 8);
  request.times.message_s = 0.1;
  const SearchResult alone = search_schedules(request);
  request.steps_overlap = true;
  const SearchResult overlapping = search_schedules(request);
  EXPECT_LT(overlapping.candidates[static_cast<size_t>(overlapping.best)].summary.cost_s,
            alone.candidates[static_cast<size_t>(alone.best)].summary.cost_s);
}

TEST(Search, WhatIsMadeForALimitGetsIt) {
  SearchRequest request = request_of(4, 8);
  request.memory_limit = 2.5;
  const SearchResult result = search_schedules(request);
  EXPECT_TRUE(named(result, "zb-auto").fits);
  EXPECT_FALSE(named(result, "1f1b").fits);
}

TEST(Search, ALimitMovesTheChoiceAndTooLittleLeavesNone) {
  SearchRequest request = request_of(4, 16);
  const SearchResult free = search_schedules(request);
  request.memory_limit = 3;
  const SearchResult limited = search_schedules(request);
  ASSERT_GE(limited.best, 0);
  EXPECT_FALSE(named(limited, "gpipe").fits);
  EXPECT_LE(limited.candidates[static_cast<size_t>(limited.best)].peak_held, 3);
  EXPECT_GT(limited.candidates[static_cast<size_t>(limited.best)].summary.makespan_s,
            free.candidates[static_cast<size_t>(free.best)].summary.makespan_s);
  // Those that fit stand before those that don't.
  EXPECT_TRUE(std::ranges::is_partitioned(limited.candidates, [](const Candidate& c) { return c.fits; }));

  request.memory_limit = 0.25;
  const SearchResult none = search_schedules(request);
  EXPECT_EQ(best_of(none), "none");
  EXPECT_NE(none.reason.find("at most 0.25"), std::string::npos) << none.reason;
}

TEST(Search, TheReasonHasTheNumbersOfTheNextAndOfTheCommonChoice) {
  const SearchResult result = search_schedules(request_of(4, 8));
  const Candidate& best = result.candidates[static_cast<size_t>(result.best)];
  for (const std::string& word :
       {fmt::format("{:.6g}", best.summary.makespan_s), std::string("1f1b (33)"), std::string("less than"),
        fmt::format("holds {:.6g} micro-batches, 1f1b's 4", best.peak_held)}) {
    EXPECT_NE(result.reason.find(word), std::string::npos) << word << " in: " << result.reason;
  }
}

TEST(Search, ChunksAreOfThoseThatTakeThem) {
  SearchRequest request = request_of(4, 8);
  request.chunks = 4;
  const SearchResult result = search_schedules(request);
  EXPECT_EQ(named(result, "interleaved-1f1b").chunks, 4);
  EXPECT_DOUBLE_EQ(named(result, "interleaved-1f1b").summary.makespan_s, (8 * 4 + 3) * 3 / 4.0);
  EXPECT_EQ(named(result, "1f1b").chunks, 1);
}

TEST(Search, NumbersThatAreNoneOrTooManyAreRefused) {
  EXPECT_THROW(search_schedules(request_of(0, 8)), UsageError);
  EXPECT_THROW(search_schedules(request_of(4, -1)), UsageError);
  EXPECT_THROW(search_schedules(request_of(1'000'000, 1'000'000)), UsageError);
}

TEST(Search, WhatCantBeMadeComesLastWithItsReason) {
  SearchRequest request = request_of(8, 2);
  request.memory_limit = 1;  // most don't fit, and still stand before it
  const SearchResult result = search_schedules(request);
  const Candidate& refused = named(result, "pipedream-2bw");
  EXPECT_NE(refused.refused.find("at least 8 micro-batches"), std::string::npos) << refused.refused;
  EXPECT_TRUE(
      std::ranges::is_partitioned(result.candidates, [](const Candidate& c) { return c.refused.empty(); }));
}

}  // namespace
}  // namespace troika

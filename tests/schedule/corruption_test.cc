// Valid schedules, broken in all the ways that a hand can break them: validate() must say what a plain run of
// the lanes says.
#include <gtest/gtest.h>

#include <optional>

#include "schedule/many_schedules.h"
#include "schedule/naive_run.h"
#include "support/fuzz.h"
#include "troika/base/error.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_text.h"

namespace troika {
namespace {

constexpr int kOfEachKind = 5;  // corruptions per schedule

void add_forms(const std::string& name, const Schedule& schedule, std::vector<NamedSchedule>& cases) {
  cases.push_back({name, schedule});
  cases.push_back({name + ", whole step", whole_step(schedule)});
  if (schedule.num_micro_batches % 2 == 0) {
    cases.push_back({name + ", recomputed", whole_step(with_recompute(schedule, {0}))});
    cases.push_back({name + ", split", with_messages(with_split_backward(schedule))});
  } else {
    cases.push_back({name + ", forwards", whole_step(forward_only(schedule))});
    cases.push_back({name + ", reductions", with_reductions(schedule)});
  }
}

std::vector<NamedSchedule> make_cases() {
  std::vector<NamedSchedule> cases;
  for (const auto& [name, schedule] : many_schedules()) add_forms(name, schedule, cases);
  return cases;
}

enum class Breach { swap, neighbours, drop, duplicate, other_lane, same_lane };
constexpr std::array kKinds = {Breach::swap,      Breach::neighbours, Breach::drop,
                               Breach::duplicate, Breach::other_lane, Breach::same_lane};

// False if the schedule is too small for it.
bool corrupt(Schedule& s, Breach kind, FuzzRandom& random) {
  Lane& lane = s.lanes[random.below(s.lanes.size())];
  if (lane.size() < 2) return false;
  const size_t at = random.below(lane.size());
  const Action action = lane[at];
  const auto iterator = lane.begin() + static_cast<std::ptrdiff_t>(at);
  const auto insert = [&](Lane& into) {
    into.insert(into.begin() + static_cast<std::ptrdiff_t>(random.below(into.size() + 1)), action);
  };
  switch (kind) {
    case Breach::swap:
      std::swap(lane[at], lane[random.below(lane.size())]);
      return true;
    case Breach::neighbours:
      std::swap(lane[at], lane[at > 0 ? at - 1 : 1]);
      return true;
    case Breach::drop:
      lane.erase(iterator);
      return true;
    case Breach::duplicate:
      insert(lane);
      return true;
    case Breach::other_lane: {
      Lane& other = s.lanes[random.below(s.lanes.size())];
      if (&other == &lane) return false;
      lane.erase(iterator);
      insert(other);
      return true;
    }
    case Breach::same_lane:
      lane.erase(iterator);
      insert(lane);
      return true;
  }
  return false;
}

ValidateOptions some_options(const Schedule& schedule, FuzzRandom& random) {
  ValidateOptions options;
  constexpr std::array kDepths = {kUnlimited, 0, 1, 2};
  if (schedule.stated.messages) options.buffer_depth = kDepths[random.below(kDepths.size())];
  if (random.below(4) == 0) options.memory_limit = 0.5 * static_cast<double>(1 + random.below(8));
  return options;
}

std::string first_reason(const Verdict& verdict) { return verdict.valid() ? "" : verdict.faults[0].reason; }

TEST(Corruption, WhatTheCatalogueMakesIsAccepted) {
  for (const auto& [name, schedule] : make_cases()) {
    EXPECT_EQ(first_reason(validate(schedule)), "") << name << "\n" << to_text(schedule);
    EXPECT_EQ(first_reason(validate(schedule, {.buffer_depth = 1, .memory_limit = {}})), "")
        << name << "\n"
        << to_text(schedule);
    for (const int depth : {kUnlimited, 2, 1, 0}) {
      for (const std::optional<double> limit : {std::optional<double>(), std::optional(2.0)}) {
        const ValidateOptions options{.buffer_depth = depth, .memory_limit = limit};
        const std::string expected = NaiveRun(schedule, options).refusal();
        ASSERT_EQ(validate(schedule, options).valid(), expected.empty()) << name << ": " << expected;
      }
    }
  }
}

TEST(Corruption, IsRefusedExactlyWhereAPlainRunFails) {
  FuzzRandom random(7);
  int64_t accepted = 0, refused = 0, at_the_limits = 0;
  for (const auto& [name, schedule] : make_cases()) {
    for (const Breach kind : kKinds) {
      for (int i = 0; i < kOfEachKind; ++i) {
        Schedule broken = schedule;
        if (!corrupt(broken, kind, random)) continue;
        const ValidateOptions options = some_options(schedule, random);
        const Verdict verdict = validate(broken, options);
        const std::string expected = NaiveRun(broken, options).refusal();
        ASSERT_EQ(verdict.valid(), expected.empty())
            << name << ", kind " << static_cast<int>(kind) << ", depth " << options.buffer_depth << ": \""
            << first_reason(verdict) << "\", but: \"" << expected << "\"\n"
            << to_text(broken);
        (verdict.valid() ? accepted : refused) += 1;
        at_the_limits += !verdict.valid() && validate(broken).valid();
        if (kind == Breach::drop || kind == Breach::duplicate || kind == Breach::other_lane) {
          ASSERT_FALSE(verdict.valid()) << name;
        }
      }
    }
  }
  std::printf("%lld accepted, %lld refused, %lld of them for buffers or memory\n",
              static_cast<long long>(accepted), static_cast<long long>(refused),
              static_cast<long long>(at_the_limits));
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 5 * accepted / 4);
  EXPECT_GT(at_the_limits, 100);
}

}  // namespace
}  // namespace troika

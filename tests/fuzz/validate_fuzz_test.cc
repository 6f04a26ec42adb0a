// Random schedules, well written and not, the same on every run: whatever the numbers in them, validate()
// ends with a verdict, and each of its faults can be explained. Meant for the sanitizer builds.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <limits>

#include "support/fuzz.h"
#include "troika/base/error.h"
#include "troika/schedule/liveness.h"
#include "troika/schedule/schedule_text.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

const std::vector<std::string> kSeeds = {
    "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n",
    "# kind=train micro_batches=2 edges=0>1,0>2,1>2,1>3,2>3 versions=1,1,1,1\n"
    "0F0 0F1 0B0 0B1\n1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1\n3F0 3B0 3F1 3B1\n",
    "# versions=2,1\n0L0 0F0 0SF0>1 0L1 0F1 0SF1>1 0RG0<1 0B0 0R 0O 0RG1<1 0B1 0R 0O\n"
    "1L0 1RF0<0 1F0 1B0 1SG0>0 1R 1O 1L1 1RF1<0 1F1 1I1 1SG1>0 1W1 1R 1O\n",
    "# kind=forward recompute=- states=messages\n0F0 0SF0>1 0F1 0SF1>1\n1RF0<0 1F0 1RF1<0 1F1\n-\n",
    "# recompute=0\n0F0 0F1 0C0 0B0 0C1 0I1 0W1\n",
};
const std::vector<std::string> kWords = {" 0F0 ",
                                         " 1B0 ",
                                         " 0SF0>1 ",
                                         " 1RF0<0 ",
                                         " 1SG0>0 ",
                                         " 0RG0<1 ",
                                         " 0O ",
                                         " 1R ",
                                         " 0L0 ",
                                         " 0C0 ",
                                         " 0I0 ",
                                         " 0W0 ",
                                         "\n",
                                         "\n-\n",
                                         "1",
                                         "9",
                                         " 2F0 ",
                                         " 0F9999999 ",
                                         " 0F2147483646 ",
                                         " 3SF0>0 ",
                                         " 7O ",
                                         "0>1,",
                                         "versions=3,2,",
                                         "updates=2",
                                         "updates=99",
                                         "micro_batches=2000000000",
                                         "kind=forward",
                                         "0"};

// Bytes are changed in every fourth text, else whole words: most of those are still well written.
std::string mutated(std::string text, FuzzRandom& random) {
  const bool words = random.below(4) > 0;
  const auto place = [&] {
    const size_t at = random.below(text.size() + 1);
    return words ? std::min(text.size(), text.find(' ', at)) : at;
  };
  const size_t changes = 1 + random.below(4);
  for (size_t i = 0; i < changes; ++i) {
    const size_t at = place(), other = place();
    const size_t from = std::min(at, other), length = std::min<size_t>(std::max(at, other) - from, 24);
    switch (random.below(5)) {
      case 0:
        text.insert(at, random.one_of(kWords));
        break;
      case 1:
        text.erase(from, words ? length : std::min<size_t>(length, 8));
        break;
      case 2:
        text.insert(place(), text.substr(from, length));
        break;
      case 3:
        if (const size_t digit = text.find_first_of("0123", at); digit < text.size()) {
          text[digit] = static_cast<char>('0' + random.below(4));
        }
        break;
      default: {
        const std::string moved = text.substr(from, length);
        text.erase(from, length);
        text.insert(place(), moved);
      }
    }
  }
  return text;
}

struct Count {
  int64_t read = 0, valid = 0, faults = 0;
};

void look_at(const Schedule& schedule, FuzzRandom& random, Count& count) {
  ValidateOptions options;
  options.buffer_depth = random.one_of(std::array{kUnlimited, 0, 1, 2, 1'000'000'000});
  if (random.below(2) == 0) options.memory_limit = random.one_of(std::array{-1.0, 0.0, 0.5, 2.0, 1e300});
  const Verdict verdict = validate(schedule, options);
  ASSERT_LE(verdict.faults.size(), static_cast<size_t>(kMostFaults));
  for (const Fault& fault : verdict.faults) {
    ASSERT_FALSE(fault.reason.empty());
    const std::string text = explain(schedule, fault);
    ASSERT_NE(text.find(fault.reason), std::string::npos);
    ASSERT_LT(text.size(), 100U * 20 + 2000U);
    ++count.faults;
  }
  ++count.read;
  if (!verdict.valid()) return;
  ++count.valid;
  ASSERT_LE(needed_buffer_depth(schedule), std::max(options.buffer_depth, 1000));
  for (size_t stage = 0; stage < schedule.max_versions.size(); ++stage) {
    ASSERT_LE(versions_held(schedule)[stage], schedule.max_versions[stage]);
  }
}

TEST(ValidateFuzz, MutatedTexts) {
  constexpr int kRuns = 30'000;
  Count count;
  for (int run = 0; run < kRuns; ++run) {
    FuzzRandom random(static_cast<uint64_t>(run));
    std::string text = random.one_of(kSeeds);
    if (run % 64 != 0) text = mutated(text, random);
    try {
      look_at(parse_schedule(text, "fuzz"), random, count);
    } catch (const Error&) {  // not well written
    }
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "run " << run << "\n" << text;
  }
  std::printf("%d runs: %lld read, %lld valid, %lld faults explained\n", kRuns,
              static_cast<long long>(count.read), static_cast<long long>(count.valid),
              static_cast<long long>(count.faults));
  EXPECT_GT(count.read, kRuns / 4);
  EXPECT_GT(count.valid, kRuns / 100);
  EXPECT_GT(count.faults, kRuns / 4);
}

constexpr std::array kNumbers = {0,
                                 0,
                                 0,
                                 1,
                                 1,
                                 1,
                                 2,
                                 2,
                                 3,
                                 4,
                                 7,
                                 -1,
                                 1'000'000'000,
                                 std::numeric_limits<int>::max(),
                                 std::numeric_limits<int>::min()};

// One field of a good schedule, or one of its actions, gets a number that no reader lets through.
void spoil(Schedule& s, FuzzRandom& random) {
  Lane& lane = s.lanes[random.below(s.lanes.size())];
  Action none;
  Action& action = lane.empty() ? none : lane[random.below(lane.size())];
  const int number = random.one_of(kNumbers);
  switch (random.below(14)) {
    case 0:
      s.num_micro_batches = number;
      break;
    case 1:
      s.num_updates = number;
      break;
    case 2:
      s.lane_of_stage[random.below(s.lane_of_stage.size())] = number;
      break;
    case 3:
      s.edges.push_back({random.one_of(kNumbers), number});
      break;
    case 4:
      s.edges.clear();
      break;
    case 5:
      s.max_versions.assign(random.below(4), number);
      break;
    case 6:
      s.recomputed.assign(random.below(4), random.below(2) == 0);
      break;
    case 7:
      s.stated = {random.below(2) == 0, random.below(2) == 0, random.below(2) == 0, random.below(2) == 0};
      break;
    case 8:
      action.stage = number;
      break;
    case 9:
      action.micro_batch = number;
      break;
    case 10:
      action.peer = number;
      break;
    case 11:
      action.op = random.one_of(kAllOps);
      break;
    case 12:
      s.lanes.resize(random.below(4) + 1);
      break;
    default:
      s.kind = random.below(2) == 0 ? Kind::train : Kind::forward;
  }
}

TEST(ValidateFuzz, SpoiltValues) {
  constexpr int kRuns = 30'000;
  Count count;
  for (int run = 0; run < kRuns; ++run) {
    FuzzRandom random(static_cast<uint64_t>(5'000'000 + run));
    Schedule schedule = parse_schedule(random.one_of(kSeeds), "seed");
    for (size_t i = random.below(4); i > 0; --i) spoil(schedule, random);
    look_at(schedule, random, count);
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "run " << run;
  }
  std::printf("%d runs: %lld valid, %lld faults explained\n", kRuns, static_cast<long long>(count.valid),
              static_cast<long long>(count.faults));
  EXPECT_GT(count.valid, kRuns / 20);
  EXPECT_GT(count.faults, kRuns / 2);
}

}  // namespace
}  // namespace troika

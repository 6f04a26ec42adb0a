// What holds for every valid schedule, of random ones (support/random_schedule.h).
#include <gtest/gtest.h>

#include "schedule/naive_run.h"
#include "support/random_schedule.h"
#include "troika/base/error.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/schedule_text.h"

namespace troika {
namespace {

constexpr int kRandomSchedules = 1'500;

void expect_runs(const Schedule& schedule, const char* what, int buffer_depth = kUnlimited) {
  const Verdict verdict = validate(schedule, {.buffer_depth = buffer_depth, .memory_limit = {}});
  EXPECT_TRUE(verdict.valid()) << what << "\n"
                               << to_text(schedule) << explain(schedule, verdict.faults.front());
}

Schedule with_all_updates(const Schedule& schedule) {
  return with_weight_versions(with_updates(with_reductions(schedule)));
}

TEST(RandomSchedule, PassesKeepItValid) {
  int asynchronous = 0;
  for (int run = 0; run < kRandomSchedules; ++run) {
    FuzzRandom random(static_cast<uint64_t>(5'000'000 + run));
    const Schedule compute = RandomSchedule(random).make();
    expect_runs(compute, "passes alone");
    expect_runs(with_loads(compute, static_cast<int>(random.below(4))), "loads");
    expect_runs(whole_step(forward_only(compute)), "forwards", 1);
    expect_runs(with_all_updates(with_messages(compute)), "messages before updates", 1);
    const Schedule step = whole_step(with_all_updates(compute));
    expect_runs(step, "whole step", 1);
    expect_runs(with_split_backward(step), "split", 1);
    if (compute.num_updates == 1) {
      const int fewer = 1 + static_cast<int>(random.below(static_cast<size_t>(compute.num_micro_batches)));
      expect_runs(with_fused_backward(compute), "fused");
      expect_runs(with_micro_batches(compute, fewer), "fewer micro-batches");
    }
    EXPECT_EQ(parse_schedule(to_text(compute), "test"), compute);
    EXPECT_EQ(parse_schedule(to_text(step), "test"), step);
    asynchronous += std::ranges::max(step.max_versions) > 1;
    if (testing::Test::HasFailure()) FAIL() << "run " << run;
  }
  EXPECT_GT(asynchronous, kRandomSchedules / 10);
}

TEST(RandomSchedule, ValidateSaysWhatAPlainRunSays) {
  int refused = 0;
  for (int run = 0; run < kRandomSchedules; ++run) {
    FuzzRandom random(static_cast<uint64_t>(6'000'000 + run));
    const Schedule compute = RandomSchedule(random).make();
    std::vector<int> recomputed;
    for (int stage = 0; stage < compute.num_stages(); ++stage) {
      if (random.below(2) == 0) recomputed.push_back(stage);
    }
    Schedule step = whole_step(with_all_updates(with_recompute(compute, recomputed)));
    for (int& versions : step.max_versions) versions = std::max(1, versions - (random.below(8) == 0));
    const ValidateOptions options{.buffer_depth = static_cast<int>(random.below(2)), .memory_limit = {}};
    const std::string expected = NaiveRun(step, options).refusal();
    ASSERT_EQ(validate(step, options).valid(), expected.empty()) << expected << "\n" << to_text(step);
    refused += !expected.empty();
  }
  EXPECT_GT(refused, kRandomSchedules / 10);
  EXPECT_LT(refused, kRandomSchedules);
}

}  // namespace
}  // namespace troika

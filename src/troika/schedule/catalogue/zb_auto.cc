#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/zb_auto_improve.h"

// Zero bubble without a fixed rule: an order of F, I and W searched for the times of the passes and the
// memory given, in three steps. The hand-made orders (1f1b with a backward in two parts, zb-h1, zb-h2) that
// fit the memory; some thousands of orders that a lane-by-lane rule makes, each with other choices
// (zb_auto_greedy.h); if the best is not at the bound that no order can beat, changes along its longest chain
// (zb_auto_improve.h). The goal is the smallest cost, then makespan, then memory. 4 stages, 6 micro-batches,
// F = I = W, memory for 5: cost 20, which is the bound; zb-h1 needs 21 with 4, zb-h2 19 with 6.
//
//     F0 F1 F2 F3 F4 .  .  I0 W0 F5 I1 W1 I2 W2 I3 I4 W3 W4 I5 W5
//     .  F0 F1 F2 F3 F4 I0 W0 I1 W1 F5 I2 W2 I3 I4 W3 W4 I5 W5
//     .  .  F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 I4 W1 W2 I5 W3 W4 W5
//     .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5

namespace troika {
namespace {

using namespace zb_auto;

// In passes placed, never in seconds: the same answer on every machine.
constexpr int64_t kPolicyBudget = 6'000'000;
constexpr int64_t kImproveBudget = 32'000'000;
constexpr int64_t kFewestPolicies = 4;
constexpr int64_t kMostTries = 10000;

Made best_order(const Problem& problem) {
  Made best;
  const auto offer = [&](Made made) {
    if (made.score < best.score) best = std::move(made);
  };
  {
    Timetable table(problem);
    for (const Known known : {Known::one_f_one_b, Known::zb_h1, Known::zb_h2}) {
      Order order = known_order(problem, known);
      TROIKA_ASSERT(table.fill(order), "a known order that can't run");
      const Score score = table.score(order);
      offer({std::move(order), score});
    }
  }
  const Ticks enough = least_cost(problem), early = least_makespan(problem);
  const auto passes = static_cast<int64_t>(problem.num_passes());
  int64_t left = std::max(kFewestPolicies, kPolicyBudget / passes);
  Made eager;  // the best of the rules that never wait: it often has more room for changes
  for_each_policy(problem, [&](const Policy& policy) {
    Made made = make_order(problem, policy);
    if (policy.idle_allowance < 0 && made.score < eager.score) eager = made;
    offer(std::move(made));
    return --left > 0 && (best.score.cost > enough || best.score.makespan > early);
  });
  const int64_t tries = std::min(kMostTries, kImproveBudget / passes) / 2;
  best = improve_order(problem, std::move(best), tries);
  if (best.score.cost > enough) offer(improve_order(problem, std::move(eager), tries));
  return best;
}

int limit_of(const ScheduleRequest& request) {
  const double limit = request.memory_limit.value_or(request.lanes);
  if (!(limit >= 1)) {
    fail_usage(
        "memory limit: expected 1 or more, got {}: zb-auto works from 1 micro-batch per lane on, and "
        "reaches 1f1b's speed from {} on",
        limit, request.lanes);
  }
  return static_cast<int>(std::min(std::floor(limit), static_cast<double>(request.micro_batches)));
}

Op op_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return Op::forward;
    case Pass::input:
      return Op::backward_input;
    case Pass::weight:
      return Op::backward_weight;
  }
  return Op::forward;
}

Schedule make_zb_auto(const ScheduleRequest& request) {
  const Made made =
      best_order(make_problem(request.lanes, request.micro_batches, limit_of(request), request.times));
  Schedule schedule = empty_schedule(Kind::train, request.micro_batches, loop_layout(request.lanes, 1));
  for (int lane = 0; lane < request.lanes; ++lane) {
    int next[3] = {};
    for (const Pass pass : made.order[static_cast<size_t>(lane)]) {
      schedule.lanes[static_cast<size_t>(lane)].push_back(
          {.op = op_of(pass), .stage = lane, .micro_batch = next[static_cast<size_t>(pass)]++});
    }
  }
  return schedule;
}

}  // namespace

CatalogueEntry zb_auto_entry() {
  return {
      .name = "zb-auto",
      .summary = "zero bubble, searched for the given times of F, I, W and messages, and the given memory",
      .bubble = "near max(0, (p-1)(F+I+2c) - (k-1) min(F,W)), k = memory limit, c = a message",
      .memory = "the memory limit; min(p, m) by default",
      .use =
          "when the times are measured: with zb-h1's memory or less, or as much as there is; steps "
          "should overlap",
      .paper = "Qi et al., 2024, arXiv:2401.10241",
      .splits_backward = true,
      .gains_by_overlap = true,
      .make = make_zb_auto};
}

}  // namespace troika

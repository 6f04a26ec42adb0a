#include "troika/schedule/catalogue/vee_search.h"

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"

namespace troika::vee {
namespace {

// In passes carried out. Where all passes take equally long and messages no time the first recipes are hard
// to beat, and a tenth of it is enough.
constexpr int64_t kBudget = 4'000'000;
constexpr int64_t kMostRuns = 1'200;
constexpr int64_t kFewestRuns = 4;

class Random {
 public:
  int below(int end) { return static_cast<int>((bits_.next() >> 20) % static_cast<uint64_t>(end)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  Xorshift bits_{88172645463325252ULL};
};

void change(Recipe& recipe, VeeKind kind, int lanes, Random& random) {
  constexpr std::array kLookAheads = {0, 4, 8, 12, 24, 48, 4000};
  constexpr std::array kSources = {Source::pattern,   Source::even_run, Source::forwards_run,
                                   Source::timetable, Source::squeezed, Source::rounds};
  switch (random.below(14)) {
    case 0:
    case 1:
    case 2:
      recipe.hop[static_cast<size_t>(random.below(kChain))] = 2 + random.below(12);
      break;
    case 3:
      recipe.turn[static_cast<size_t>(random.below(kChain - 1))] = 1 + random.below(24);
      break;
    case 4:
      recipe.period = 12 + 2 * random.below(10);
      break;
    case 5:
      recipe.early_period = 4 + 2 * random.below(12);
      recipe.early = random.below(2 * lanes + 1);
      break;
    case 6:
      recipe.late_by_weight = 2 * random.below(6);
      break;
    case 7:
      recipe.look_ahead = kLookAheads[static_cast<size_t>(random.below(kLookAheads.size()))];
      recipe.overlap = 3 * random.below(5);
      break;
    case 8:
      recipe.weight_lag = random.one_in(2) ? Recipe::kLazy : 2 * random.below(12);
      break;
    case 9:
      if (kind != VeeKind::zero_bubble) recipe.reserve = random.below(2);
      break;
    case 10:
      recipe.allowance = random.one_in(3) ? -1 : random.below(12);
      recipe.balanced = random.one_in(2);
      break;
    case 11:
      recipe.keep_weights = random.one_in(2);
      recipe.late_look_ahead = 12 * random.below(3);
      break;
    case 12:
      recipe.before_forward = random.one_in(2);
      recipe.before_input_down = random.one_in(2);
      recipe.rebalanced = random.one_in(2);
      break;
    case 13:
      if (random.one_in(3)) recipe.source = kSources[static_cast<size_t>(random.below(kSources.size()))];
      break;
  }
}

class Search {
 public:
  Search(VeeKind kind, const Shape& shape) : kind_(kind), shape_(shape), maker_(shape) {
    const bool even = shape.forward == shape.input && shape.input == shape.weight && shape.message == 0;
    const auto passes = static_cast<int64_t>(shape.num_passes());
    runs_ =
        std::clamp((even ? kBudget / 10 : kBudget) / passes, kFewestRuns, even ? kMostRuns / 10 : kMostRuns);
  }

  std::vector<std::vector<Pass>> best() {
    // One micro-batch after the other can always run.
    try_recipe({.turn = {1, 1, 1}, .period = 1'000 * shape_.lanes});
    for (const Recipe& recipe : first_recipes(kind_, shape_.lanes)) {
      if (!finished(runs_)) try_recipe(recipe);
    }
    TROIKA_ASSERT(outcome_.complete, "no order of the V can run");
    while (!finished(runs_ * 2 / 3)) {
      Recipe recipe = recipe_;
      for (int i = random_.below(3); i >= 0; --i) change(recipe, kind_, shape_.lanes, random_);
      try_recipe(recipe);
    }
    polish();
    return std::move(orders_);
  }

 private:
  bool finished(int64_t runs) const {
    return maker_.num_runs() + polished_ >= runs || outcome_.cost <= shape_.work();
  }

  void try_recipe(const Recipe& recipe) {
    const Outcome outcome = maker_.make(recipe, outcome_.cost);
    if (!(outcome < outcome_)) return;
    recipe_ = recipe;
    keep(outcome);
  }

  void keep(const Outcome& outcome) {
    outcome_ = outcome;
    orders_ = maker_.last().orders();
    ranks_ = maker_.last_ranks();
  }

  // Moves one pass of some lanes and micro-batches earlier or later; what is no worse is kept.
  void polish() {
    Ranks ranks;
    while (!finished(runs_)) {
      ranks = ranks_;
      for (int i = random_.below(2); i >= 0; --i) shift(ranks);
      Rules rules = {.reserve = 0};
      if (random_.one_in(4)) rules.late_by_weight = shape_.weight * 2 * random_.below(6) / 10;
      if (random_.one_in(4)) {
        rules.look_ahead = slot() * 8 * random_.below(6);
        rules.overlap = shape_.weight * random_.below(4) / 4;
      }
      ++polished_;
      const Outcome outcome = maker_.make(ranks, rules);
      if (outcome.complete && !(outcome_ < outcome)) keep(outcome);
    }
  }

  void shift(Ranks& ranks) {
    const int pass = random_.below(kPasses), lanes = shape_.lanes, count = shape_.micro_batches;
    int first_lane = random_.below(lanes), end_lane = first_lane + 1;
    if (random_.one_in(2)) {
      if (random_.one_in(2)) first_lane = 0;
      if (random_.one_in(2)) end_lane = lanes;
    }
    const int first = random_.below(count);
    int end = first + 1;
    if (random_.one_in(2)) end = std::min(count, first + 1 + random_.below(2 * lanes));
    const Ticks most = 4 * slot() * (random_.one_in(3) ? 12 : 4);
    const Ticks by = most * (random_.below(2001) - 1000) / 1000;
    for (int lane = first_lane; lane < end_lane; ++lane) {
      for (int i = first; i < end; ++i) ranks[shape_.at(lane, pass, i)] += by;
    }
  }

  Ticks slot() const { return std::max<Ticks>(1, (shape_.forward + shape_.input + shape_.weight) / 3); }

  VeeKind kind_;
  Shape shape_;
  VeeMaker maker_;
  Random random_;
  int64_t runs_ = 0, polished_ = 0;
  Outcome outcome_;
  Recipe recipe_;
  Ranks ranks_;
  std::vector<std::vector<Pass>> orders_;
};

Action action_of(const Shape& shape, int lane, Pass pass, int micro_batch) {
  const int up = 2 * shape.lanes - 1 - lane;
  switch (pass) {
    case kForwardDown:
      return {Op::forward, lane, micro_batch};
    case kForwardUp:
      return {Op::forward, up, micro_batch};
    case kInputUp:
      return {Op::backward_input, up, micro_batch};
    case kInputDown:
      return {Op::backward_input, lane, micro_batch};
    case kWeightDown:
      return {Op::backward_weight, lane, micro_batch};
    case kWeightUp:
      return {Op::backward_weight, up, micro_batch};
  }
  return {};
}

}  // namespace

int most_held(VeeKind kind, int lanes) {
  switch (kind) {
    case VeeKind::zero_bubble:
      return 2 * lanes;
    case VeeKind::half:
      return 2 * (lanes / 2) + 2;
    case VeeKind::least:
      return 2 * ((lanes + 4) / 3);
  }
  return 2 * lanes;
}

Schedule make_vee(VeeKind kind, const ScheduleRequest& request) {
  int held = most_held(kind, request.lanes);
  // A chunk is half a micro-batch of a lane; fewer than two can't hold any.
  if (request.memory_limit && *request.memory_limit >= 1) {
    held = static_cast<int>(std::min<double>(held, std::floor(2 * *request.memory_limit)));
  }
  const Shape shape = make_shape(request, held);
  const auto orders = Search(kind, shape).best();
  Schedule schedule = empty_schedule(Kind::train, request.micro_batches, vee_layout(request.lanes));
  for (int lane = 0; lane < request.lanes; ++lane) {
    std::array<int, kPasses> next = {};
    Lane& actions = schedule.lanes[static_cast<size_t>(lane)];
    for (const Pass pass : orders[static_cast<size_t>(lane)]) {
      actions.push_back(action_of(shape, lane, pass, next[pass]++));
    }
  }
  return schedule;
}

}  // namespace troika::vee

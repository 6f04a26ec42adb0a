#include "troika/schedule/catalogue/vee_recipe.h"

#include <algorithm>

#include "troika/schedule/catalogue/vee_squeeze.h"

namespace troika::vee {
namespace {

constexpr int kQuarters = 4;
constexpr int64_t kRunsOfASqueeze = 4;  // what it takes, about
constexpr Ticks kEven = kQuarters;  // ticks of a pass where all are equally long, so that a quarter is a tick

Shape with_times(Shape shape, Ticks forward, Ticks input, Ticks weight) {
  shape.forward = forward, shape.input = input, shape.weight = weight, shape.message = 0;
  return shape;
}

// Of equal times, the pass that is nearest to the end of its micro-batch goes first.
Ticks rank_of(Ticks time, int pass) { return 4 * time + (pass < kChain ? kChain - 1 - pass : 0); }

Ticks three_slots(const Shape& shape) { return shape.forward + shape.input + shape.weight; }

// Times of all passes as ranks.
Ranks ranks_of(const Shape& shape, const std::vector<Ticks>& times, Ticks scale = 1) {
  Ranks ranks(shape.num_passes());
  for (int lane = 0; lane < shape.lanes; ++lane) {
    for (int pass = 0; pass < kPasses; ++pass) {
      for (int i = 0; i < shape.micro_batches; ++i) {
        const size_t at = shape.at(lane, pass, i);
        ranks[at] = rank_of(scale * times[at], pass);
      }
    }
  }
  return ranks;
}

// The way of one micro-batch through the pattern: visit(lane, pass, quarters since its start).
template <typename Visit>
void for_each_in_pattern(const Recipe& recipe, int lanes, const Visit& visit) {
  int turn = 0;
  for (int pass = 0; pass < kChain; ++pass) {
    if (pass > 0) turn += recipe.turn[static_cast<size_t>(pass - 1)];
    const int hop = recipe.hop[static_cast<size_t>(pass)];
    for (int lane = 0; lane < lanes; ++lane) {
      visit(lane, pass, turn + hop * (to_higher_lanes(pass) ? lane : lanes - 1 - lane));
    }
    turn += (lanes - 1) * hop;
  }
}

Rules last_rules(const Recipe& recipe, const Shape& shape, Ticks best_cost) {
  Rules rules = {.overlap = shape.weight * recipe.overlap / 10,
                 .late_by_weight = shape.weight * recipe.late_by_weight / 10,
                 .balanced = recipe.balanced,
                 .before_forward = recipe.before_forward,
                 .before_input_down = recipe.before_input_down,
                 .reserve = recipe.reserve};
  if (recipe.allowance >= 0) {
    const Ticks idle = best_cost < kNever ? best_cost - shape.work() : 0;
    rules.allowance = idle * recipe.allowance / 10;
  }
  return rules;
}

}  // namespace

VeeMaker::VeeMaker(const Shape& shape)
    : shape_(shape),
      even_(with_times(shape, kEven, kEven, kEven)),
      forwards_(with_times(shape, kEven, kEven, 0)),
      run_(shape_),
      even_run_(even_),
      forwards_run_(forwards_),
      ranks_(shape.num_passes()) {}

Outcome VeeMaker::make(const Recipe& recipe, Ticks best_cost) {
  if (!rank(recipe)) return {};
  Rules rules = last_rules(recipe, shape_, best_cost);
  if (recipe.source == Source::pattern) {
    rules.look_ahead = rank_of(recipe.look_ahead * three_slots(shape_), kWeightUp);
  } else if (recipe.source != Source::rounds) {
    rules.look_ahead = 4 * recipe.late_look_ahead;  // in the ticks of the even run
  }
  ++num_runs_;
  const Outcome outcome = run_.run(ranks_, rules);
  return recipe.rebalanced && outcome.complete ? run_rebalanced(rules, outcome) : outcome;
}

Ranks VeeMaker::last_ranks() const { return ranks_of(shape_, run_.starts()); }

bool VeeMaker::rank(const Recipe& recipe) {
  switch (recipe.source) {
    case Source::pattern:
      rank_by_pattern(recipe, shape_);
      return true;
    case Source::rounds:
      rank_by_rounds();
      return true;
    case Source::squeezed:
      return rank_by_squeeze(recipe);
    case Source::even_run:
    case Source::forwards_run:
    case Source::timetable:
      return rank_by_run(recipe);
  }
  return false;
}

void VeeMaker::rank_by_pattern(const Recipe& recipe, const Shape& shape) {
  const Ticks quarter = three_slots(shape);  // in twelfths of a tick
  for_each_in_pattern(recipe, shape.lanes, [&](int lane, int pass, Ticks first) {
    for (int i = 0; i < shape.micro_batches; ++i) {
      const Ticks early = std::min(i, recipe.early);
      const Ticks time = first + early * recipe.early_period + (i - early) * recipe.period;
      ranks_[shape.at(lane, pass, i)] = rank_of(time * quarter, pass);
      if (pass < kInputUp) continue;
      const int weight = pass == kInputUp ? kWeightUp : kWeightDown;
      ranks_[shape.at(lane, weight, i)] = rank_of((time + recipe.weight_lag) * quarter, weight);
    }
  });
}

bool VeeMaker::rank_by_run(const Recipe& recipe) {
  const bool forwards = recipe.source == Source::forwards_run;
  const Shape& shape = forwards ? forwards_ : even_;
  VeeRun& run = forwards ? forwards_run_ : even_run_;
  rank_by_pattern(recipe, even_);
  Rules rules = {.look_ahead = rank_of(recipe.look_ahead * three_slots(even_), kWeightUp),
                 .reserve = recipe.reserve};
  if (recipe.source == Source::timetable) {
    const Ticks first = ranks_[shape.at(0, kInputDown, 0)];
    const Ticks last = ranks_[shape.at(0, kForwardDown, shape.micro_batches - 1)];
    const Ticks per_tick = rank_of(three_slots(even_), kWeightUp);  // a quarter is a tick here
    not_before_.assign(ranks_.size(), 0);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i] >= first && ranks_[i] <= last) not_before_[i] = ranks_[i] / per_tick;
    }
    rules.not_before = &not_before_;
  }
  ++num_runs_;
  if (!run.run(ranks_, rules).complete) return false;
  ranks_ = ranks_of(shape, run.starts());
  leave_weights(recipe);
  return true;
}

bool VeeMaker::rank_by_squeeze(const Recipe& recipe) {
  const bool known =
      squeezed_recipe_ && squeezed_recipe_->hop == recipe.hop && squeezed_recipe_->turn == recipe.turn;
  if (!known) {
    squeezed_recipe_ = recipe;
    squeezed_ = squeeze(recipe);
  }
  if (!squeezed_) return false;
  ranks_ = ranks_of(shape_, *squeezed_, kEven);
  leave_weights(recipe);
  return true;
}

std::optional<Ranks> VeeMaker::squeeze(const Recipe& recipe) {
  const auto whole = [](int quarters) { return quarters >= kQuarters && quarters % kQuarters == 0; };
  if (!std::all_of(recipe.hop.begin(), recipe.hop.end(), whole)) return std::nullopt;
  if (!std::all_of(recipe.turn.begin(), recipe.turn.end(), whole)) return std::nullopt;
  num_runs_ += kRunsOfASqueeze;
  PatternSlots slots(static_cast<size_t>(shape_.lanes));
  for_each_in_pattern(recipe, shape_.lanes, [&](int lane, int pass, int quarters) {
    slots[static_cast<size_t>(lane)][static_cast<size_t>(pass)] = quarters / kQuarters;
  });
  return squeezed(shape_, slots);
}

// Weight parts that don't keep their places fill gaps.
void VeeMaker::leave_weights(const Recipe& recipe) {
  if (recipe.keep_weights) return;
  for (int lane = 0; lane < shape_.lanes; ++lane) {
    for (const int pass : {kWeightDown, kWeightUp}) {
      for (int i = 0; i < shape_.micro_batches; ++i) ranks_[shape_.at(lane, pass, i)] = kNever / 2;
    }
  }
}

// Ranks are the places in the lane. Warm-up: as many forwards down as can be done before the first comes up
// again; then down and up in turn until the first input part is due, which fills the memory.
void VeeMaker::rank_by_rounds() {
  const int lanes = shape_.lanes, count = shape_.micro_batches;
  std::vector<std::array<int, kChain>> next(static_cast<size_t>(lanes));
  std::vector<Ticks> place(static_cast<size_t>(lanes));
  const auto done = [&](int lane, Pass pass) -> int { return next[static_cast<size_t>(lane)][pass]; };
  const auto put = [&](int lane, Pass pass) {
    if (done(lane, pass) == count) return;
    ranks_[shape_.at(lane, pass, next[static_cast<size_t>(lane)][pass]++)] =
        ++place[static_cast<size_t>(lane)];
  };
  std::fill(ranks_.begin(), ranks_.end(), kNever / 2);
  for (int lane = 0; lane < lanes; ++lane) {
    for (int i = 0; i < 2 * (lanes - 1 - lane); ++i) put(lane, kForwardDown);
    for (int i = 0; i <= lane; ++i) put(lane, kForwardDown), put(lane, kForwardUp);
  }
  std::vector<Pass> input(static_cast<size_t>(lanes));
  for (int round = 0; round < 2 * count; ++round) {
    // On the way down as soon as the lane below has done it.
    for (int lane = 0; lane < lanes; ++lane) {
      const int down = done(lane, kInputDown), up = done(lane, kInputUp);
      const bool due = down < up && (lane == lanes - 1 || done(lane + 1, kInputDown) > down || up == count);
      input[static_cast<size_t>(lane)] = due ? kInputDown : kInputUp;
    }
    for (int lane = 0; lane < lanes; ++lane) put(lane, input[static_cast<size_t>(lane)]);
    for (int lane = 0; lane < lanes; ++lane) {
      const int down = done(lane, kForwardDown), up = done(lane, kForwardUp);
      if (up < down && (lane == lanes - 1 || done(lane + 1, kForwardUp) > up)) {
        put(lane, kForwardUp);
      } else if (lane == 0 || done(lane - 1, kForwardDown) > down) {
        put(lane, kForwardDown);
      }
    }
  }
}

// A lane that was idle less than the idlest one may wait for that much without losing anything.
Outcome VeeMaker::run_rebalanced(Rules rules, Outcome outcome) {
  constexpr int kMostRuns = 8;
  const Rules plain = rules;
  std::vector<Ticks> allowance, last;
  for (int i = 0; i < kMostRuns; ++i) {
    last = std::move(allowance);
    allowance = run_.idle();
    const Ticks most = *std::max_element(allowance.begin(), allowance.end());
    for (Ticks& idle : allowance) idle = most - idle;
    rules.lane_allowance = &allowance;
    ++num_runs_;
    const Outcome again = run_.run(ranks_, rules);
    if (again < outcome) {
      outcome = again;
      continue;
    }
    // The run before was the best: once more, for its order.
    rules.lane_allowance = &last;
    ++num_runs_;
    return run_.run(ranks_, i == 0 ? plain : rules);
  }
  return outcome;
}

}  // namespace troika::vee

// A Recipe says in a few small numbers how the order of a V-shaped schedule is made; VeeMaker carries one
// out. One thread at a time.
#pragma once

#include <optional>

#include "troika/schedule/catalogue/vee_run.h"

namespace troika::vee {

/// Where the ranks of the passes come from.
enum class Source {
  pattern,       // one micro-batch's way through the V, repeated every `period`: ranks are the times in it
  even_run,      // the starts of a run of that pattern in which every pass takes equally long
  forwards_run,  // the same, but weight parts take no time: they are left to fill gaps
  timetable,     // even_run, and what stands in the middle doesn't start before its time in the pattern
  squeezed,      // the slots of the pattern, squeezed (vee_squeeze.h)
  rounds,        // a forward and an input part in turn in every lane, after a warm-up that fills the memory
};

/// "Quarters" are quarters of a slot, and a slot is (F + I + W) / 3.
struct Recipe {
  Source source = Source::pattern;
  // Pattern. From lane to lane (forward down, forward up, input up, input down), and where the V turns.
  std::array<int, kChain> hop = {4, 4, 4, 4};
  std::array<int, kChain - 1> turn = {4, 4, 4};
  int period = 24;
  int early = 0;  // so many micro-batches follow each other by early_period instead
  int early_period = 24;
  int weight_lag = kLazy;  // of a weight part behind its input part
  // Of the run that the source asks for, and of the last one.
  int reserve = 1;
  int look_ahead = 0;
  // Of the last run, if it is another one.
  bool keep_weights = false;  // weight parts keep their places, too
  int late_look_ahead = 0;
  // Of the last run, in tenths of W.
  int overlap = 0;
  int late_by_weight = 0;
  // Allowances (vee_run.h) of the last run. In tenths of the idle time of the best so far; -1: none.
  int allowance = -1;
  bool balanced = false;
  bool rebalanced = false;  // and again, with each lane's from the idle times of the run before
  bool before_forward = true, before_input_down = true;

  static constexpr int kLazy = 1000;
};

class VeeMaker {
 public:
  explicit VeeMaker(const Shape& shape);

  /// Carries the recipe out; `best_cost` is what its allowance refers to. Order and ranks are those of the
  /// last run.
  Outcome make(const Recipe& recipe, Ticks best_cost);

  /// Carries ranks out as they are.
  Outcome make(const Ranks& ranks, const Rules& rules) { return run_.run(ranks, rules); }

  const VeeRun& last() const { return run_; }
  /// Ranks that are the starts of the last run: carried out again, they give the same order.
  Ranks last_ranks() const;
  int64_t num_runs() const { return num_runs_; }

 private:
  bool rank(const Recipe& recipe);
  void rank_by_pattern(const Recipe& recipe, const Shape& shape);
  void rank_by_rounds();
  bool rank_by_run(const Recipe& recipe);
  bool rank_by_squeeze(const Recipe& recipe);
  std::optional<Ranks> squeeze(const Recipe& recipe);
  void leave_weights(const Recipe& recipe);
  Outcome run_rebalanced(Rules rules, Outcome outcome);

  Shape shape_, even_, forwards_;
  VeeRun run_, even_run_, forwards_run_;
  Ranks ranks_, not_before_;
  // The last pattern squeezed, which takes longer than a run.
  std::optional<Recipe> squeezed_recipe_;
  std::optional<Ranks> squeezed_;
  int64_t num_runs_ = 0;
};

}  // namespace troika::vee

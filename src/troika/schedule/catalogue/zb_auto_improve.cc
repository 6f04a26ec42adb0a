#include "troika/schedule/catalogue/zb_auto_improve.h"

#include <algorithm>

namespace troika::zb_auto {

namespace {

/// One pass of a lane goes to another step; those between move up by one.
struct Move {
  int lane = 0, from = 0, to = 0;
};

void apply(const Move& move, Order& order) {
  const auto at = order[static_cast<size_t>(move.lane)].begin();
  if (move.from < move.to) std::rotate(at + move.from, at + move.from + 1, at + move.to + 1);
  if (move.from > move.to) std::rotate(at + move.to, at + move.from, at + move.from + 1);
}

bool lane_fits(const std::vector<Pass>& lane, int limit) {
  int held = 0;
  for (const Pass pass : lane) {
    if (pass == Pass::forward && ++held > limit) return false;
    if (pass == Pass::weight) --held;
  }
  return true;
}

class Improver {
 public:
  explicit Improver(const Problem& problem)
      : problem_(problem),
        steps_(3 * problem.micro_batches),
        table_(problem),
        forward_step_(problem.num_passes() / 3),
        input_step_(problem.num_passes() / 3) {}

  /// Threshold accepting: a change that makes things worse by less than a threshold, falling to 0, is kept.
  void search(Made& best, int64_t tries, double threshold) {
    const Ticks enough = least_cost(problem_);
    Order order = best.order;
    table_.fill(order);
    double value = value_of(best.score);
    double best_value = value;
    find_moves(order);
    for (int64_t left = tries; left > 0 && best.score.cost > enough && !moves_.empty(); --left) {
      const Move move = moves_[random_below(moves_.size())];
      apply(move, order);
      if (lane_fits(order[static_cast<size_t>(move.lane)], problem_.limit) && table_.fill(order)) {
        const Score score = table_.score(order);
        const double tried = value_of(score);
        const double now = threshold * static_cast<double>(left) / static_cast<double>(tries);
        const double draw = static_cast<double>(random_below(1 << 16)) / (1 << 16);
        if (tried <= value + now * draw * draw) {
          value = tried;
          if (tried < best_value) {
            best_value = tried;
            if (score < best.score) best = {order, score};
          }
          find_moves(order);
          continue;
        }
      }
      apply({move.lane, move.to, move.from}, order);
    }
  }

 private:
  /// Cost, and a little of what may lower it later: the other lanes' spans.
  double value_of(const Score& score) const {
    return static_cast<double>(score.cost) +
           1e-3 / problem_.lanes * static_cast<double>(table_.sum_of_spans());
  }

  Ticks end(const Order& order, int lane, int step) const {
    return table_.start(lane, step) +
           problem_.ticks(order[static_cast<size_t>(lane)][static_cast<size_t>(step)]);
  }
  bool gap_before(const Order& order, int lane, int step) const {
    return table_.start(lane, step) > end(order, lane, step - 1);
  }

  void index_steps(const Order& order) {
    for (int lane = 0; lane < problem_.lanes; ++lane) {
      int forwards = 0, inputs = 0;
      for (int step = 0; step < steps_; ++step) {
        const Pass pass = order[static_cast<size_t>(lane)][static_cast<size_t>(step)];
        if (pass == Pass::forward) forward_step_[problem_.at(lane, forwards++)] = step;
        if (pass == Pass::input) input_step_[problem_.at(lane, inputs++)] = step;
      }
    }
  }

  /// The step of the pass in the neighbour lane that this one waited for, or -1.
  int awaited(const Order& order, int lane, int step, int& from_lane) const {
    const Pass pass = order[static_cast<size_t>(lane)][static_cast<size_t>(step)];
    if (pass == Pass::weight) return -1;
    from_lane = pass == Pass::forward ? lane - 1 : lane + 1;
    if (from_lane < 0 || from_lane == problem_.lanes) return -1;
    const std::vector<int>& steps = pass == Pass::forward ? forward_step_ : input_step_;
    const auto mine = steps.begin() + static_cast<std::ptrdiff_t>(problem_.at(lane, 0));
    const auto micro_batch = std::lower_bound(mine, mine + problem_.micro_batches, step) - mine;
    const int there = steps[problem_.at(from_lane, static_cast<int>(micro_batch))];
    return end(order, from_lane, there) + problem_.message == table_.start(lane, step) ? there : -1;
  }

  /// Changes along the chain of passes that makes the longest lane as long as it is.
  void find_moves(const Order& order) {
    moves_.clear();
    index_steps(order);
    int lane = 0;
    for (int other = 1; other < problem_.lanes; ++other) {
      if (table_.span(other) > table_.span(lane)) lane = other;
    }
    for (int step = steps_ - 1; step > 0;) {
      int from_lane = lane;
      const int there = awaited(order, lane, step, from_lane);
      const bool follows = !gap_before(order, lane, step);
      if (follows && (there < 0 || random_below(2) == 0)) {
        add_moves(order, lane, step);
        --step;
      } else if (there >= 0) {
        lane = from_lane;
        step = there;
      } else {
        return;
      }
    }
  }

  void add_moves(const Order& order, int lane, int step) {
    const std::vector<Pass>& passes = order[static_cast<size_t>(lane)];
    const Pass before = passes[static_cast<size_t>(step - 1)], pass = passes[static_cast<size_t>(step)];
    if (before == pass) return;
    moves_.push_back({lane, step - 1, step});
    if (before == Pass::weight) {  // out of the chain, into one of the next gaps
      int found = 0;
      for (int later = step + 1; later < steps_ && found < kGaps; ++later) {
        if (!gap_before(order, lane, later)) continue;
        moves_.push_back({lane, step - 1, later - 1});
        ++found;
      }
      const int further = step + 1 + static_cast<int>(random_below(8));
      moves_.push_back({lane, step - 1, std::min(further, steps_ - 1)});
    }
    if (pass == Pass::weight) return;
    int found = 0;  // an F or I into a gap before
    for (int earlier = step - 1; earlier > std::max(0, step - kLookBack) && found < kGaps; --earlier) {
      if (!gap_before(order, lane, earlier)) continue;
      moves_.push_back({lane, step, earlier});
      ++found;
    }
  }

  size_t random_below(size_t count) { return static_cast<size_t>((random_.next() >> 32) * count >> 32); }

  static constexpr int kGaps = 3, kLookBack = 20;

  const Problem& problem_;
  int steps_;
  Timetable table_;
  std::vector<int> forward_step_, input_step_;
  std::vector<Move> moves_;
  Xorshift random_{0x9e3779b97f4a7c15};
};

}  // namespace

Made improve_order(const Problem& problem, Made made, int64_t tries) {
  if (made.score.cost <= least_cost(problem)) return made;
  Improver improver(problem);
  // Small thresholds mend a nearly good order, large ones lead out of a bad one.
  const double pass = static_cast<double>(std::max({problem.forward, problem.input, problem.weight}));
  constexpr double kThresholds[] = {0.05, 0.25, 4, 0.5};
  for (const double threshold : kThresholds) improver.search(made, tries / 4, threshold * pass);
  return made;
}

}  // namespace troika::zb_auto

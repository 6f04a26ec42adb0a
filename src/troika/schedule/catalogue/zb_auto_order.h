// What the search of zb-auto works on: the order of F, I and W in every lane, and how long an order takes.
// Inside zb-auto only. Pure; thread-safe.
#pragma once

#include <vector>

#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/reproducible.h"

namespace troika::zb_auto {

enum class Pass : uint8_t { forward, input, weight };

struct Problem {
  int lanes = 1;
  int micro_batches = 1;
  int limit = 1;  // peak held of a lane, in micro-batches
  Ticks forward = 0, input = 0, weight = 0, message = 0;

  Ticks ticks(Pass pass) const {
    switch (pass) {
      case Pass::forward:
        return forward;
      case Pass::input:
        return input;
      case Pass::weight:
        return weight;
    }
    return 0;
  }
  Ticks work() const { return micro_batches * (forward + input + weight); }  // of one lane
  size_t num_passes() const { return static_cast<size_t>(lanes) * static_cast<size_t>(micro_batches) * 3; }
  size_t at(int lane, int micro_batch) const {
    return static_cast<size_t>(lane) * static_cast<size_t>(micro_batches) + static_cast<size_t>(micro_batch);
  }
};

/// Only ratios of the times are kept. `limit` from 1.
Problem make_problem(int lanes, int micro_batches, int limit, const PassTimes& times);

/// Of each lane; the k-th F, I or W of a lane is the one of micro-batch k.
using Order = std::vector<std::vector<Pass>>;

struct Score {
  Ticks cost = kNever;  // largest span of a lane
  Ticks makespan = kNever;
  int peak = 0;  // of held
  auto operator<=>(const Score&) const = default;
};

int peak_held(const Order& order);

/// No order within the limit costs less, or ends earlier. Not always reached.
Ticks least_cost(const Problem& problem);
Ticks least_makespan(const Problem& problem);

/// When the passes of an order start, each as early as it can. Keeps a reference to the problem.
class Timetable {
 public:
  explicit Timetable(const Problem& problem);

  /// False if the order can't run: lanes wait for each other.
  bool fill(const Order& order);

  Ticks start(int lane, int step) const { return start_[index(lane, step)]; }
  Ticks span(int lane) const { return free_[static_cast<size_t>(lane)] - start(lane, 0); }
  Ticks sum_of_spans() const;
  Score score(const Order& order) const;

 private:
  size_t index(int lane, int step) const {
    return static_cast<size_t>(lane) * steps_ + static_cast<size_t>(step);
  }
  size_t run_lane(int lane, const std::vector<Pass>& order);  // as far as it goes; how far that was

  const Problem& problem_;
  size_t steps_;
  std::vector<Ticks> start_, forward_end_, input_end_, free_;
  std::vector<int> forwards_, inputs_, weights_, step_;
};

/// The hand-made orders of Qi et al.: warm-up forwards, then F and I alternate, a W after an I as soon as
/// more than `lag` are pending. Where the limit is below what they hold, both are cut to fit.
enum class Known { one_f_one_b, zb_h1, zb_h2 };
Order known_order(const Problem& problem, Known known);

}  // namespace troika::zb_auto

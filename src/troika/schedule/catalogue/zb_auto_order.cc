#include "troika/schedule/catalogue/zb_auto_order.h"

#include <algorithm>
#include <cmath>

#include "troika/schedule/catalogue/orders.h"

namespace troika::zb_auto {

Problem make_problem(int lanes, int micro_batches, int limit, const PassTimes& times) {
  Problem problem{.lanes = lanes, .micro_batches = micro_batches, .limit = std::min(limit, micro_batches)};
  const double longest = std::max({times.forward_s, times.input_s, times.weight_s, times.message_s});
  if (longest == 0) return problem;
  // As fine as leaves room for everything one after the other.
  const double passes = (lanes + 1.0) * (micro_batches + 1.0);
  int bits = 44;
  while (std::ldexp(8 * passes, bits) > 0x1p60) --bits;
  const auto ticks = [&](double seconds) {
    return static_cast<Ticks>(std::llround(std::ldexp(seconds / longest, bits)));
  };
  problem.forward = ticks(times.forward_s);
  problem.input = ticks(times.input_s);
  problem.weight = ticks(times.weight_s);
  problem.message = ticks(times.message_s);
  return problem;
}

int peak_held(const Order& order) {
  int peak = 0;
  for (const std::vector<Pass>& lane : order) {
    int held = 0;
    for (const Pass pass : lane) {
      if (pass == Pass::forward) peak = std::max(peak, ++held);
      if (pass == Pass::weight) --held;
    }
  }
  return peak;
}

Ticks least_cost(const Problem& problem) {
  const Ticks each = problem.forward + problem.input + problem.weight;
  // From the end of a forward in the first lane to the start of its input part: the way to the last lane and
  // back.
  const Ticks round = (problem.lanes - 1) * (problem.forward + problem.input + 2 * problem.message);
  const Ticks latency = round + each;
  const int limit = problem.limit, last = problem.micro_batches - 1;
  // Before its first I the first lane has no more than `limit` F to fill the wait; after its last I the last
  // lane has no more than `limit` W left while that I's gradient travels to the first lane.
  Ticks least = problem.work();
  least = std::max(least, least + round - (limit - 1) * std::min(problem.forward, problem.weight));
  if (last < limit) return std::max(least, latency + last * problem.forward);
  // F number `limit` in the first lane waits for the first W, later ones do an I and a W each before; the
  // last one then makes its round.
  least = std::max(least, latency + (last - limit) * each + latency);
  return std::max(least, (last / limit) * latency + (last % limit) * each + latency);
}

Ticks least_makespan(const Problem& problem) {
  const Ticks last_lane = (problem.lanes - 1) * (problem.forward + problem.message) + problem.work();
  return std::max(least_cost(problem), last_lane);
}

Timetable::Timetable(const Problem& problem)
    : problem_(problem), steps_(3 * static_cast<size_t>(problem.micro_batches)) {
  const auto lanes = static_cast<size_t>(problem.lanes);
  start_.resize(lanes * steps_);
  forward_end_.resize(start_.size() / 3);
  input_end_.resize(start_.size() / 3);
  free_.resize(lanes);
  for (std::vector<int>* counts : {&forwards_, &inputs_, &weights_, &step_}) counts->resize(lanes);
}

size_t Timetable::run_lane(int lane, const std::vector<Pass>& order) {
  const auto at = static_cast<size_t>(lane);
  const int before = step_[at];
  Ticks now = free_[at];
  const auto place = [&](Ticks from, Ticks takes) {
    now = std::max(now, from);
    start_[index(lane, step_[at])] = now;
    return now += takes;
  };
  for (; step_[at] < static_cast<int>(steps_); ++step_[at]) {
    const Pass pass = order[static_cast<size_t>(step_[at])];
    if (pass == Pass::forward) {
      const int mine = forwards_[at];
      if (lane > 0 && forwards_[at - 1] <= mine) break;
      const Ticks from = lane > 0 ? forward_end_[problem_.at(lane - 1, mine)] + problem_.message : 0;
      forward_end_[problem_.at(lane, mine)] = place(from, problem_.forward);
      ++forwards_[at];
    } else if (pass == Pass::input) {
      const int mine = inputs_[at];
      const bool last = lane + 1 == problem_.lanes;
      if (forwards_[at] <= mine || (!last && inputs_[at + 1] <= mine)) break;
      const Ticks from = last ? 0 : input_end_[problem_.at(lane + 1, mine)] + problem_.message;
      input_end_[problem_.at(lane, mine)] = place(from, problem_.input);
      ++inputs_[at];
    } else {
      if (inputs_[at] <= weights_[at]) break;
      place(0, problem_.weight);
      ++weights_[at];
    }
  }
  free_[at] = now;
  return static_cast<size_t>(step_[at] - before);
}

bool Timetable::fill(const Order& order) {
  std::fill(free_.begin(), free_.end(), 0);
  for (std::vector<int>* counts : {&forwards_, &inputs_, &weights_, &step_}) {
    std::fill(counts->begin(), counts->end(), 0);
  }
  for (size_t done = 0; done < problem_.num_passes();) {
    const size_t before = done;
    // Down with the forwards, up with the gradients.
    for (int lane = 0; lane < problem_.lanes; ++lane) {
      done += run_lane(lane, order[static_cast<size_t>(lane)]);
    }
    for (int lane = problem_.lanes - 1; lane >= 0; --lane) {
      done += run_lane(lane, order[static_cast<size_t>(lane)]);
    }
    if (done == before) return false;
  }
  return true;
}

Ticks Timetable::sum_of_spans() const {
  Ticks sum = 0;
  for (int lane = 0; lane < problem_.lanes; ++lane) sum += span(lane);
  return sum;
}

Score Timetable::score(const Order& order) const {
  Score score{.cost = 0, .makespan = 0, .peak = peak_held(order)};
  for (int lane = 0; lane < problem_.lanes; ++lane) score.cost = std::max(score.cost, span(lane));
  score.makespan = *std::max_element(free_.begin(), free_.end());
  return score;
}

Order known_order(const Problem& problem, Known known) {
  std::vector<int> warm_ups = shortest_warm_ups(problem.lanes);
  for (int& warm_up : warm_ups) {
    warm_up = std::min(known == Known::zb_h2 ? 2 * warm_up : warm_up, problem.limit - 1);
  }
  const Schedule schedule = one_stage_per_lane(problem.micro_batches, warm_ups, Op::backward_input);
  Order order(schedule.lanes.size());
  for (size_t lane = 0; lane < order.size(); ++lane) {
    const int steps = static_cast<int>(lane) * (known == Known::one_f_one_b ? 0
                                                : known == Known::zb_h1     ? 1
                                                                            : 2);
    const int may_wait = std::min(steps, problem.limit - 1 - warm_ups[lane]);
    for (const Action& action : with_late_weights(schedule.lanes[lane], may_wait)) {
      order[lane].push_back(action.op == Op::forward          ? Pass::forward
                            : action.op == Op::backward_input ? Pass::input
                                                              : Pass::weight);
    }
  }
  return order;
}

}  // namespace troika::zb_auto

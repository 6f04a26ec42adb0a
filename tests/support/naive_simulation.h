// A second simulation with rules of its own (it knows nothing of needs.h and graph.h), slow and plain: look
// at every lane's next action, do it if the ends of all it waits for are in a map, until nothing is left.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "troika/schedule/schedule.h"
#include "troika/simulate/cost_model.h"
#include "troika/trace/trace.h"

namespace troika {

class NaiveSimulation {
 public:
  NaiveSimulation(const Schedule& schedule, const CostModel& costs) : schedule_(schedule), costs_(costs) {}

  /// Spans lane after lane. Those that can't run are missing.
  std::vector<Span> run() {
    std::vector<std::vector<Span>> done(schedule_.lanes.size());
    std::vector<double> free_at(schedule_.lanes.size(), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t lane = 0; lane < schedule_.lanes.size(); ++lane) {
        while (done[lane].size() < schedule_.lanes[lane].size()) {
          const Action action = schedule_.lanes[lane][done[lane].size()];
          const std::optional<double> ready = ready_at(action);
          if (!ready) break;
          const double start = std::max(free_at[lane], *ready);
          free_at[lane] = start + seconds(action);
          done[lane].push_back({static_cast<int>(lane), action, start, free_at[lane]});
          ends_[{action.op, action.stage, action.micro_batch, action.peer}] = free_at[lane];
          progress = true;
        }
      }
    }
    std::vector<Span> spans;
    for (const auto& lane : done) spans.insert(spans.end(), lane.begin(), lane.end());
    return spans;
  }

 private:
  using Time = std::optional<double>;  // none: not yet

  static Time later(Time a, Time b) { return a && b ? Time(std::max(*a, *b)) : std::nullopt; }

  Time end(Op op, int stage, int micro_batch, int peer = -1) const {
    const auto found = ends_.find({op, stage, micro_batch, peer});
    return found == ends_.end() ? std::nullopt : Time(found->second);
  }

  Time backward_end(int stage, int micro_batch, Op part) const {
    const Time whole = end(Op::backward, stage, micro_batch);
    return whole ? whole : end(part, stage, micro_batch);
  }

  Time weights_end(int stage, int update) const {
    const int batches = schedule_.num_micro_batches, updates = schedule_.num_updates;
    Time last = 0;
    int longer = batches % updates, first = 0;
    for (int k = 0; k < update; ++k) first += batches / updates + (k < longer ? 1 : 0);
    const int count = batches / updates + (update < longer ? 1 : 0);
    for (int j = first; j < first + count; ++j)
      last = later(last, backward_end(stage, j, Op::backward_weight));
    return last;
  }

  int lane_of(int stage) const { return schedule_.lane_of_stage[static_cast<size_t>(stage)]; }

  Time arrived(Time sent, int from, int to) const {
    if (!sent || lane_of(from) == lane_of(to)) return sent;
    const auto special = costs_.links.find({lane_of(from), lane_of(to)});
    const Link link = special == costs_.links.end() ? costs_.link : special->second;
    const double bytes = costs_.stages[static_cast<size_t>(std::min(from, to))].output_bytes;
    return *sent + (link.latency_s + link.seconds_per_byte * bytes);
  }

  // The activation on its way from `from` into `to`, or the gradient on its way back.
  Time activation(int from, int to, int j) const {
    if (schedule_.stated.messages && lane_of(from) != lane_of(to)) {
      return end(Op::receive_activation, to, j, from);
    }
    return arrived(end(Op::forward, from, j), from, to);
  }

  Time gradient(int from, int to, int j) const {
    if (schedule_.stated.messages && lane_of(from) != lane_of(to)) {
      return end(Op::receive_gradient, to, j, from);
    }
    return arrived(backward_end(from, j, Op::backward_input), from, to);
  }

  Time ready_at(const Action& a) const {
    const int s = a.stage, j = a.micro_batch;
    Time ready = 0;
    bool first = true, last = true;
    for (const Edge& edge : schedule_.edges) {
      if (edge.to == s) first = false;
      if (edge.from == s) last = false;
    }
    const bool recomputed = !schedule_.recomputed.empty() && schedule_.recomputed[static_cast<size_t>(s)];
    switch (a.op) {
      case Op::load:
        return 0;
      case Op::forward:
        if (schedule_.stated.loads && (first || last)) ready = end(Op::load, s, j);
        for (const Edge& edge : schedule_.edges) {
          if (edge.to == s) ready = later(ready, activation(edge.from, s, j));
        }
        return ready;
      case Op::recompute:
        return end(Op::forward, s, j);
      case Op::backward:
      case Op::backward_input:
        ready = end(recomputed ? Op::recompute : Op::forward, s, j);
        for (const Edge& edge : schedule_.edges) {
          if (edge.from == s) ready = later(ready, gradient(edge.to, s, j));
        }
        return ready;
      case Op::backward_weight:
        return end(Op::backward_input, s, j);
      case Op::reduce_gradients:
        return weights_end(s, j);
      case Op::optimizer_step:
        return schedule_.stated.reductions ? end(Op::reduce_gradients, s, j) : weights_end(s, j);
      case Op::send_activation:
        return end(Op::forward, s, j);
      case Op::receive_activation:
        return arrived(end(Op::send_activation, a.peer, j, s), a.peer, s);
      case Op::send_gradient:
        return backward_end(s, j, Op::backward_input);
      case Op::receive_gradient:
        return arrived(end(Op::send_gradient, a.peer, j, s), a.peer, s);
    }
    return std::nullopt;
  }

  double seconds(const Action& a) const {
    const StageCost& cost = costs_.stages[static_cast<size_t>(a.stage)];
    switch (a.op) {
      case Op::load:
        return cost.load_s;
      case Op::forward:
      case Op::recompute:
        return cost.forward_s;
      case Op::backward:
        return cost.backward_s ? *cost.backward_s : cost.input_s + cost.weight_s;
      case Op::backward_input:
        return cost.input_s;
      case Op::backward_weight:
        return cost.weight_s;
      case Op::reduce_gradients:
        return cost.reduce_s;
      case Op::optimizer_step:
        return cost.update_s;
      case Op::send_activation:
      case Op::receive_activation:
      case Op::send_gradient:
      case Op::receive_gradient:
        return 0;
    }
    return 0;
  }

  const Schedule& schedule_;
  const CostModel& costs_;
  std::map<Action, double> ends_;
};

}  // namespace troika

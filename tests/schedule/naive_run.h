// A schedule run step by step with plain rules: what validate() says in fast ways, said again in slow ones.
// On purpose it uses nothing of needs.h, graph.h and liveness.h.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "troika/schedule/validate.h"

namespace troika {

class NaiveRun {
 public:
  NaiveRun(const Schedule& schedule, const ValidateOptions& options)
      : s_(schedule), options_(options), next_(schedule.lanes.size(), 0) {}

  /// Why the schedule is refused; "" if it is accepted.
  std::string refusal() {
    if (const auto wrong = unknown_action()) return "no such action: " + to_string(*wrong);
    for (bool moved = true; moved;) {
      moved = false;
      for (int lane = 0; lane < s_.num_lanes(); ++lane) {
        while (const Action* action = next(lane)) {
          if (refused_.empty() && !may_start(lane, *action)) break;
          if (!refused_.empty()) return refused_;
          finish(lane, *action);
          if (!refused_.empty()) return refused_;
          moved = true;
        }
      }
    }
    for (int lane = 0; lane < s_.num_lanes(); ++lane) {
      if (const Action* action = next(lane)) return "never done: " + to_string(*action);
    }
    return missing();
  }

 private:
  const Action* next(int lane) const {
    const Lane& actions = s_.lanes[static_cast<size_t>(lane)];
    const size_t at = next_[static_cast<size_t>(lane)];
    return at < actions.size() ? &actions[at] : nullptr;
  }
  int lane_of(int stage) const { return s_.lane_of_stage[static_cast<size_t>(stage)]; }
  bool done(Op op, int stage, int micro_batch, int peer = -1) const {
    return done_.contains({op, stage, micro_batch, peer});
  }
  bool recomputed(int stage) const {
    return !s_.recomputed.empty() && s_.recomputed[static_cast<size_t>(stage)];
  }
  bool has_edge(int from, int to) const {
    return std::ranges::find(s_.edges, Edge{from, to}) != s_.edges.end();
  }
  bool loads(int stage) const {
    const bool in = std::ranges::any_of(s_.edges, [&](const Edge& e) { return e.to == stage; });
    const bool out = std::ranges::any_of(s_.edges, [&](const Edge& e) { return e.from == stage; });
    return !in || !out;
  }
  // Dealt out one by one: the first updates get one more.
  int update_of(int micro_batch) const {
    std::vector<int> sizes(static_cast<size_t>(s_.num_updates), 0);
    for (int i = 0; i < s_.num_micro_batches; ++i) ++sizes[static_cast<size_t>(i % s_.num_updates)];
    int update = 0;
    for (int before = sizes[0]; before <= micro_batch; before += sizes[static_cast<size_t>(update)]) ++update;
    return update;
  }

  // Of everything that a schedule like this one has exactly once; backwards both ways.
  std::set<Action> all_actions() const {
    std::set<Action> all;
    const bool train = s_.kind == Kind::train;
    for (int stage = 0; stage < s_.num_stages(); ++stage) {
      for (int mb = 0; mb < s_.num_micro_batches; ++mb) {
        all.insert({Op::forward, stage, mb});
        if (s_.stated.loads && loads(stage)) all.insert({Op::load, stage, mb});
        if (!train) continue;
        for (const Op op : {Op::backward, Op::backward_input, Op::backward_weight})
          all.insert({op, stage, mb});
        if (recomputed(stage)) all.insert({Op::recompute, stage, mb});
      }
      for (int update = 0; train && update < s_.num_updates; ++update) {
        if (s_.stated.reductions) all.insert({Op::reduce_gradients, stage, update});
        if (s_.stated.updates) all.insert({Op::optimizer_step, stage, update});
      }
    }
    for (const Edge& edge : s_.edges) {
      if (!s_.stated.messages || lane_of(edge.from) == lane_of(edge.to)) continue;
      for (int mb = 0; mb < s_.num_micro_batches; ++mb) {
        all.insert({Op::send_activation, edge.from, mb, edge.to});
        all.insert({Op::receive_activation, edge.to, mb, edge.from});
        if (train) all.insert({Op::send_gradient, edge.to, mb, edge.from});
        if (train) all.insert({Op::receive_gradient, edge.from, mb, edge.to});
      }
    }
    return all;
  }

  const Action* unknown_action() {
    all_ = all_actions();
    for (const Lane& lane : s_.lanes) {
      for (const Action& action : lane) {
        if (!all_.contains(action)) return &action;
      }
    }
    return nullptr;
  }

  std::string missing() const {
    for (const Action& action : all_) {
      if (done_.contains(action)) continue;
      const bool whole = done(Op::backward, action.stage, action.micro_batch);
      const bool parts = done(Op::backward_input, action.stage, action.micro_batch) &&
                         done(Op::backward_weight, action.stage, action.micro_batch);
      const bool is_part = action.op == Op::backward_input || action.op == Op::backward_weight;
      if ((is_part && whole) || (action.op == Op::backward && parts)) continue;
      return "missing: " + to_string(action);
    }
    return "";
  }

  bool input_gradient_there(int stage, int mb) const {
    return done(Op::backward, stage, mb) || done(Op::backward_input, stage, mb);
  }
  bool weight_gradient_there(int stage, int mb) const {
    return done(Op::backward, stage, mb) || done(Op::backward_weight, stage, mb);
  }
  bool share_done(int stage, int update) const {
    for (int mb = 0; mb < s_.num_micro_batches; ++mb) {
      if (update_of(mb) == update && !weight_gradient_there(stage, mb)) return false;
    }
    return true;
  }

  bool forward_may_start(int stage, int mb) const {
    if (s_.stated.loads && loads(stage) && !done(Op::load, stage, mb)) return false;
    for (const Edge& edge : s_.edges) {
      if (edge.to != stage) continue;
      const bool crosses = lane_of(edge.from) != lane_of(stage);
      const bool arrived = crosses && s_.stated.messages ? done(Op::receive_activation, stage, mb, edge.from)
                                                         : done(Op::forward, edge.from, mb);
      if (!arrived) return false;
    }
    return true;
  }

  bool backward_may_start(int stage, int mb) const {
    if (!done(Op::forward, stage, mb)) return false;
    if (recomputed(stage) && !done(Op::recompute, stage, mb)) return false;
    for (const Edge& edge : s_.edges) {
      if (edge.from != stage) continue;
      const bool crosses = lane_of(edge.to) != lane_of(stage);
      const bool arrived = crosses && s_.stated.messages ? done(Op::receive_gradient, stage, mb, edge.to)
                                                         : input_gradient_there(edge.to, mb);
      if (!arrived) return false;
    }
    return true;
  }

  bool may_start(int lane, const Action& a) {
    const auto [op, stage, mb, peer] = a;
    switch (op) {
      case Op::load:
        return true;
      case Op::forward:
        return forward_may_start(stage, mb);
      case Op::recompute:
        return done(Op::forward, stage, mb);
      case Op::backward:
      case Op::backward_input:
        return backward_may_start(stage, mb);
      case Op::backward_weight:
        return done(Op::backward_input, stage, mb);
      case Op::reduce_gradients:
        return share_done(stage, mb);
      case Op::optimizer_step:
        return s_.stated.reductions ? done(Op::reduce_gradients, stage, mb) : share_done(stage, mb);
      case Op::send_activation:
        return done(Op::forward, stage, mb) && has_room(lane, a);
      case Op::send_gradient:
        return input_gradient_there(stage, mb) && has_room(lane, a);
      case Op::receive_activation:
        return has_arrived({lane_of(peer), lane}, {Op::send_activation, peer, mb, stage});
      case Op::receive_gradient:
        return has_arrived({lane_of(peer), lane}, {Op::send_gradient, peer, mb, stage});
    }
    return false;
  }

  bool has_room(int lane, const Action& send) {
    const int to = lane_of(send.peer);
    if (options_.buffer_depth > 0) {
      return buffers_[{lane, to}].size() < static_cast<size_t>(options_.buffer_depth);
    }
    // A blocking send needs its receiver at the receive: it puts the message into its hand.
    const Action* other = next(to);
    if (other == nullptr || (other->op != Op::receive_activation && other->op != Op::receive_gradient)) {
      return false;
    }
    return lane_of(other->peer) == lane && buffers_[{lane, to}].empty();
  }

  bool has_arrived(std::pair<int, int> lanes, const Action& send) {
    const auto& buffer = buffers_[lanes];
    if (buffer.empty()) return false;
    if (buffer.front() != send) refused_ = "another message arrives than " + to_string(send);
    return true;
  }

  void finish(int lane, const Action& a) {
    const auto [op, stage, mb, peer] = a;
    if (lane != lane_of(stage)) refused_ = "in another lane: " + to_string(a);
    if (!done_.insert(a).second) refused_ = "twice: " + to_string(a);
    const bool whole = done(Op::backward, stage, mb);
    if (whole && (done(Op::backward_input, stage, mb) || done(Op::backward_weight, stage, mb)) &&
        (op == Op::backward || op == Op::backward_input || op == Op::backward_weight)) {
      refused_ = "B and its parts: " + to_string(a);
    }
    if (op == Op::send_activation || op == Op::send_gradient) buffers_[{lane, lane_of(peer)}].push_back(a);
    if (op == Op::receive_activation || op == Op::receive_gradient) {
      buffers_[{lane_of(peer), lane}].pop_front();
    }
    count_updates(a);
    count_memory(lane, op);
    ++next_[static_cast<size_t>(lane)];
  }

  void count_updates(const Action& a) {
    const auto [op, stage, mb, peer] = a;
    if (op == Op::reduce_gradients && mb != reduced_[stage]++) refused_ = "out of order: " + to_string(a);
    if (op == Op::optimizer_step && mb != updated_[stage]++) refused_ = "out of order: " + to_string(a);
    const bool makes_gradient = op == Op::backward || op == Op::backward_weight;
    for (int other = 0; makes_gradient && other < s_.num_micro_batches; ++other) {
      const bool earlier = update_of(other) < update_of(mb);
      const bool taken = s_.stated.reductions ? done(Op::reduce_gradients, stage, update_of(other))
                                              : weight_gradient_there(stage, other);
      if (earlier && !taken) refused_ = "gradients of two updates are mixed: " + to_string(a);
    }
    if (!s_.stated.updates) return;
    auto& used = version_used_[stage];
    if (op == Op::forward) used[mb] = updated_[stage];
    if (makes_gradient) used.erase(mb);
    std::set<int> versions{updated_[stage]};
    for (const auto& [micro_batch, version] : used) versions.insert(version);
    if (static_cast<int>(versions.size()) > s_.max_versions[static_cast<size_t>(stage)]) {
      refused_ = "too many versions: " + to_string(a);
    }
  }

  void count_memory(int lane, Op op) {
    if (!options_.memory_limit) return;
    const auto stages = static_cast<double>(std::ranges::count(s_.lane_of_stage, lane));
    if (op == Op::forward) ++held_[lane];
    if (held_[lane] / stages > *options_.memory_limit + 1e-9) refused_ = "too much is held";
    if (op == Op::backward || op == Op::backward_weight) --held_[lane];
    if (op == Op::forward && s_.kind == Kind::forward) --held_[lane];
  }

  const Schedule& s_;
  const ValidateOptions& options_;
  std::vector<size_t> next_;
  std::set<Action> all_, done_;
  std::map<std::pair<int, int>, std::deque<Action>> buffers_;
  std::map<int, int> reduced_, updated_;
  std::map<int, std::map<int, int>> version_used_;  // per stage: micro-batch in flight -> version
  std::map<int, int> held_;
  std::string refused_;
};

}  // namespace troika

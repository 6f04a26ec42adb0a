#include "troika/schedule/structure.h"

#include <algorithm>

#include "troika/base/error.h"

namespace troika {
namespace {

std::string place_of(const ActionGraph& graph, int number) {
  const int lane = graph.lane(number);
  return fmt::format("lane {}, step {}", lane, number - graph.first_of(lane));
}

// Why a message names no edge that it could go along.
std::string wrong_edge(const Schedule& s, const Action& a) {
  if (a.peer < 0 || a.peer >= s.num_stages()) {
    return fmt::format("there is no stage {}: the stages are 0 to {}", a.peer, s.num_stages() - 1);
  }
  const bool downstream = a.op == Op::send_activation || a.op == Op::receive_gradient;
  const Edge edge = downstream ? Edge{a.stage, a.peer} : Edge{a.peer, a.stage};
  const bool along = std::ranges::binary_search(s.edges, edge);
  const bool backwards = std::ranges::binary_search(s.edges, Edge{edge.to, edge.from});
  if (!along && backwards) {
    return fmt::format("the edge is {}>{}: activations go along it, gradients come back", edge.to, edge.from);
  }
  if (!along) return fmt::format("there is no edge {}>{} (edges= in the header)", edge.from, edge.to);
  return fmt::format("stages {} and {} are both in lane {}: nothing is sent within a lane", edge.from,
                     edge.to, s.lane_of(edge.from));
}

// Why an action of this kind may not stand in the schedule at all; "" if it may.
std::string wrong_kind(const Schedule& s, const Action& a) {
  const bool of_training = a.op != Op::load && a.op != Op::forward && a.op != Op::send_activation &&
                           a.op != Op::receive_activation;
  if (s.kind == Kind::forward && of_training) {
    return fmt::format("a forward-only schedule (kind=forward) has no {}", name_of(a.op));
  }
  const auto unstated = [](std::string_view what) {
    return fmt::format("the schedule doesn't state {} (states= in the header)", what);
  };
  switch (a.op) {
    case Op::load:
      return s.stated.loads ? "" : unstated("loads");
    case Op::reduce_gradients:
      return s.stated.reductions ? "" : unstated("reductions");
    case Op::optimizer_step:
      return s.stated.updates ? "" : unstated("updates");
    case Op::send_activation:
    case Op::receive_activation:
    case Op::send_gradient:
    case Op::receive_gradient:
      return s.stated.messages ? "" : unstated("messages");
    case Op::recompute:
      if (s.is_recomputed(a.stage)) return "";
      return fmt::format("stage {} is not a recomputed one (recompute= in the header)", a.stage);
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
      break;
  }
  return "";
}

std::string wrong_number(const Schedule& s, const Action& a) {
  if (is_message(a.op) && a.micro_batch >= 0 && a.micro_batch < s.num_micro_batches) return wrong_edge(s, a);
  if (is_whole_stage(a.op)) {
    return fmt::format(
        "stage {} has {} update{} in this schedule (updates= in the header), and this is "
        "number {}",
        a.stage, s.num_updates, s.num_updates == 1 ? "" : "s", int64_t{a.micro_batch} + 1);
  }
  return fmt::format("there is no micro-batch {}: they are 0 to {}", a.micro_batch, s.num_micro_batches - 1);
}

// Says why the action may not stand here; "" if it may.
std::string wrong_with(const Schedule& s, const ActionGraph& graph, int number) {
  const Action& a = graph.action(number);
  if (a.stage < 0 || a.stage >= s.num_stages()) {
    return fmt::format("there is no stage {}: the stages are 0 to {}", a.stage, s.num_stages() - 1);
  }
  if (std::string why = wrong_kind(s, a); !why.empty()) return why;
  if (!graph.index().names_what_exists(a)) return wrong_number(s, a);
  if (const int home = s.lane_of(a.stage); home != graph.lane(number)) {
    return fmt::format("stage {} is in lane {}: all actions of a stage stand in one lane", a.stage, home);
  }
  if (!is_message(a.op) && a.peer != -1)
    return fmt::format("only messages name a peer, and it is {}", a.peer);
  if (a.op == Op::load && !graph.dependencies().loads(a.stage)) {
    return fmt::format("stage {} loads nothing: only stages without edges in (data) or out (targets) do",
                       a.stage);
  }
  if (const int first = graph.index().find(a); first != number) {
    return fmt::format("it stands twice, first in {}", place_of(graph, first));
  }
  if (a.op == Op::backward_input || a.op == Op::backward_weight) {
    const int whole = graph.index().find({Op::backward, a.stage, a.micro_batch});
    if (whole < 0) return "";
    return fmt::format("{} is both parts of this backward already, in {}", to_string(graph.action(whole)),
                       place_of(graph, whole));
  }
  return "";
}

class Complete {
 public:
  Complete(const Schedule& schedule, const ActionGraph& graph, FaultList& faults)
      : s_(schedule), graph_(graph), faults_(faults) {}

  void check_micro_batch(int stage, int micro_batch, bool loads) {
    want({Op::forward, stage, micro_batch}, "each stage does a forward of each micro-batch");
    if (loads) {
      want({Op::load, stage, micro_batch}, "loads are stated, and stages without edges in or out need one");
    }
    if (s_.kind == Kind::forward) return;
    if (s_.is_recomputed(stage)) {
      want({Op::recompute, stage, micro_batch}, "the stage is recomputed before each backward");
    }
    const Action whole{Op::backward, stage, micro_batch};
    const Action input{Op::backward_input, stage, micro_batch},
        weight{Op::backward_weight, stage, micro_batch};
    if (has(whole)) return;
    if (!has(input) && !has(weight)) {
      missing(whole, "each stage does a backward of each micro-batch, as B or as I and W");
    } else if (!has(input)) {
      missing(input, "the weight part of this backward is there, and its input part isn't");
    } else if (!has(weight)) {
      missing(weight, "the input part of this backward is there, and its weight part isn't");
    }
  }

  void check_edge(const Edge& edge, int micro_batch) {
    constexpr std::string_view kWhy = "messages are stated, and this edge goes from a lane to another";
    want({Op::send_activation, edge.from, micro_batch, edge.to}, kWhy);
    want({Op::receive_activation, edge.to, micro_batch, edge.from}, kWhy);
    if (s_.kind == Kind::forward) return;
    want({Op::send_gradient, edge.to, micro_batch, edge.from}, kWhy);
    want({Op::receive_gradient, edge.from, micro_batch, edge.to}, kWhy);
  }

  void want(const Action& action, std::string_view why) {
    if (!has(action)) missing(action, why);
  }

 private:
  bool has(const Action& action) const { return graph_.index().find(action) >= 0; }
  void missing(const Action& action, std::string_view why) {
    const int lane = s_.lane_of(action.stage);
    faults_.add(lane, -1, action, fmt::format("{} is missing: {}", to_string(action), why));
  }

  const Schedule& s_;
  const ActionGraph& graph_;
  FaultList& faults_;
};

}  // namespace

void check_actions(const Schedule& schedule, const ActionGraph& graph, FaultList& faults) {
  for (int number = 0; number < graph.size(); ++number) {
    std::string why = wrong_with(schedule, graph, number);
    if (why.empty()) continue;
    const int lane = graph.lane(number);
    faults.add(lane, number - graph.first_of(lane), graph.action(number), std::move(why));
  }
}

void check_complete(const Schedule& schedule, const ActionGraph& graph, FaultList& faults) {
  Complete complete(schedule, graph, faults);
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const bool loads = schedule.stated.loads && graph.dependencies().loads(stage);
    for (int micro_batch = 0; micro_batch < schedule.num_micro_batches; ++micro_batch) {
      complete.check_micro_batch(stage, micro_batch, loads);
    }
    for (int update = 0; update < schedule.num_updates && schedule.kind == Kind::train; ++update) {
      if (schedule.stated.reductions) {
        complete.want({Op::reduce_gradients, stage, update}, "reductions are stated, one per update");
      }
      if (schedule.stated.updates) {
        complete.want({Op::optimizer_step, stage, update}, "updates are stated");
      }
    }
  }
  for (const Edge& edge : schedule.edges) {
    if (!schedule.stated.messages || !schedule.crosses_lanes(edge)) continue;
    for (int micro_batch = 0; micro_batch < schedule.num_micro_batches; ++micro_batch) {
      complete.check_edge(edge, micro_batch);
    }
  }
}

}  // namespace troika

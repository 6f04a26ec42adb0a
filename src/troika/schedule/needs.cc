#include "troika/schedule/needs.h"

#include "troika/base/split.h"

namespace troika {

Dependencies::Dependencies(const Schedule& schedule)
    : schedule_(schedule),
      sources_(static_cast<size_t>(schedule.num_stages())),
      targets_(static_cast<size_t>(schedule.num_stages())) {
  for (const Edge& edge : schedule.edges) {
    sources_[static_cast<size_t>(edge.to)].push_back(edge.from);
    targets_[static_cast<size_t>(edge.from)].push_back(edge.to);
  }
}

void Dependencies::needs(const Action& action, std::vector<Action>& out) const {
  out.clear();
  const auto& lane_of = schedule_.lane_of_stage;
  const auto [op, stage, micro_batch, peer] = action;
  const auto same_lane = [&, stage = stage](int other) {
    return lane_of[static_cast<size_t>(stage)] == lane_of[static_cast<size_t>(other)];
  };
  const Range group = op == Op::reduce_gradients || op == Op::optimizer_step
                          ? share({0, schedule_.num_micro_batches}, schedule_.num_updates, micro_batch)
                          : Range{};
  switch (op) {
    case Op::load:
      return;
    case Op::forward:
      if (sources_of(stage).empty() || targets_of(stage).empty())
        out.push_back({Op::load, stage, micro_batch});
      for (const int source : sources_of(stage)) {
        out.push_back(same_lane(source) ? Action{Op::forward, source, micro_batch}
                                        : Action{Op::receive_activation, stage, micro_batch, source});
      }
      return;
    case Op::recompute:
      out.push_back({Op::forward, stage, micro_batch});
      return;
    case Op::backward:
    case Op::backward_input:
      out.push_back({Op::recompute, stage, micro_batch});
      for (const int target : targets_of(stage)) {
        out.push_back(same_lane(target) ? Action{Op::backward_input, target, micro_batch}
                                        : Action{Op::receive_gradient, stage, micro_batch, target});
      }
      return;
    case Op::backward_weight:
      out.push_back({Op::backward_input, stage, micro_batch});
      return;
    case Op::reduce_gradients:
      for (int64_t each = group.begin; each < group.end; ++each) {
        out.push_back({Op::backward_weight, stage, static_cast<int>(each)});
      }
      return;
    case Op::optimizer_step:
      out.push_back({Op::reduce_gradients, stage, micro_batch});
      return;
    case Op::send_activation:
      out.push_back({Op::forward, stage, micro_batch});
      return;
    case Op::receive_activation:
      out.push_back({Op::send_activation, peer, micro_batch, stage});
      return;
    case Op::send_gradient:
      out.push_back({Op::backward_input, stage, micro_batch});
      return;
    case Op::receive_gradient:
      out.push_back({Op::send_gradient, peer, micro_batch, stage});
      return;
  }
}

std::vector<Action> needs(const Action& action, const Schedule& schedule) {
  std::vector<Action> out;
  Dependencies(schedule).needs(action, out);
  return out;
}

}  // namespace troika

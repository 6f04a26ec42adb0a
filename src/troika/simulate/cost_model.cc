#include "troika/simulate/cost_model.h"

namespace troika {

CostModel CostModel::uniform(int stages, const StageCost& cost, const Link& link) {
  return {std::vector<StageCost>(static_cast<size_t>(stages), cost), link, {}};
}

double CostModel::seconds(const Action& action) const {
  const StageCost& cost = stages[static_cast<size_t>(action.stage)];
  switch (action.op) {
    case Op::load:
      return cost.load_s;
    case Op::forward:
    case Op::recompute:
      return cost.forward_s;
    case Op::backward:
      return cost.backward_s.value_or(cost.input_s + cost.weight_s);
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

double CostModel::message_seconds(int from_lane, int to_lane, double bytes) const {
  if (from_lane == to_lane) return 0;
  const auto own = links.find({from_lane, to_lane});
  const Link& used = own == links.end() ? link : own->second;
  return used.latency_s + used.seconds_per_byte * bytes;
}

}  // namespace troika

#include "troika/schedule/lane_messages.h"

#include <algorithm>
#include <utility>

#include "troika/base/error.h"

namespace troika {

Action far_end(const Action& message) {
  Action other{message.op, message.peer, message.micro_batch, message.stage};
  switch (message.op) {
    case Op::send_activation:
      other.op = Op::receive_activation;
      return other;
    case Op::receive_activation:
      other.op = Op::send_activation;
      return other;
    case Op::send_gradient:
      other.op = Op::receive_gradient;
      return other;
    case Op::receive_gradient:
      other.op = Op::send_gradient;
      return other;
    case Op::load:
    case Op::forward:
    case Op::recompute:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::reduce_gradients:
    case Op::optimizer_step:
      break;
  }
  TROIKA_ASSERT(false, to_string(message) + " is not a message");
  return message;
}

LaneMessages::LaneMessages(const Schedule& schedule, const ActionGraph& graph) {
  // Per lane that sends: (lane that receives, number of the pair), ascending.
  std::vector<std::vector<std::pair<int, int>>> pairs(schedule.lanes.size());
  for (const Edge& edge : schedule.edges) {
    if (!schedule.crosses_lanes(edge)) continue;
    const int from = schedule.lane_of(edge.from), to = schedule.lane_of(edge.to);
    pairs[static_cast<size_t>(from)].emplace_back(to, 0);
    pairs[static_cast<size_t>(to)].emplace_back(from, 0);
  }
  int count = 0;
  for (auto& to_lanes : pairs) {
    std::ranges::sort(to_lanes);
    const auto [end, last] = std::ranges::unique(to_lanes);
    to_lanes.erase(end, last);
    for (auto& [lane, pair] : to_lanes) pair = count++;
  }
  const auto pair_of = [&](const Action& action) {
    int from = schedule.lane_of(action.stage), to = schedule.lane_of(action.peer);
    if (!is_send(action.op)) std::swap(from, to);
    const auto& to_lanes = pairs[static_cast<size_t>(from)];
    return std::ranges::lower_bound(to_lanes, to, {}, &std::pair<int, int>::first)->second;
  };

  const auto size = static_cast<size_t>(graph.size());
  pair_.assign(size, -1);
  place_.assign(size, -1);
  std::vector<int> sent(static_cast<size_t>(count), 0), received(sent);
  for (int number = 0; number < graph.size(); ++number) {
    const Action& action = graph.action(number);
    if (!is_message(action.op)) continue;
    const int pair = pair_of(action);
    auto& counted = is_send(action.op) ? sent : received;
    pair_[static_cast<size_t>(number)] = pair;
    place_[static_cast<size_t>(number)] = counted[static_cast<size_t>(pair)]++;
  }
  TROIKA_ASSERT(sent == received, "the schedule must be checked first");

  begin_.push_back(0);
  for (const int each : sent) {
    begin_.push_back(begin_.back() + static_cast<size_t>(each));
    most_ = std::max(most_, each);
  }
  sends_.resize(begin_.back());
  receives_.resize(begin_.back());
  for (int number = 0; number < graph.size(); ++number) {
    if (place(number) < 0) continue;
    (is_send(graph.action(number).op) ? sends_ : receives_)[slot(number)] = number;
  }
}

size_t LaneMessages::slot(int number) const {
  const int pair = pair_[static_cast<size_t>(number)];
  return begin_[static_cast<size_t>(pair)] + static_cast<size_t>(place(number));
}

int LaneMessages::receive_before(int send, int back) const {
  if (back > place(send)) return -1;
  return receives_[slot(send) - static_cast<size_t>(back)];
}

int LaneMessages::send_of(int receive) const { return sends_[slot(receive)]; }

}  // namespace troika

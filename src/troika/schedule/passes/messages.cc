// The messages are placed in one dry run of all lanes, with a buffer of one message per directed pair of
// lanes. A send follows its producer and waits while the channel is full; a pass first receives what it needs
// and whatever was sent before that. When nothing moves any more, the message of a full channel is received
// where its lane is stuck, which lets the sender go on. An order that came through the dry run comes through
// every run: what a lane does next never depends on time.
#include <algorithm>
#include <deque>

#include "troika/base/error.h"
#include "troika/schedule/needs.h"
#include "troika/schedule/passes.h"

namespace troika {
namespace {

// Messages from one lane to another, activations and gradients together: first in, first out.
struct Channel {
  int from = 0, to = 0;  // lanes
  bool full = false;     // one is sent and not received
  Action receive;        // of that one
  size_t arrival = 0;    // its number
  bool sender_waits = false;
  int times_waited = 0;  // of the sender
  bool receiver_waits = false;
};

// One side of an edge between two lanes, as a stage sees it.
struct Port {
  int peer = 0;  // the stage at the far end
  int channel = 0;
  size_t edge = 0;  // 2 * number of the edge, + 1 for gradients
};

class MessagePlacer {
 public:
  explicit MessagePlacer(const Schedule& schedule)
      : schedule_(schedule),
        micro_batches_(static_cast<size_t>(schedule.num_micro_batches)),
        ports_(schedule.lane_of_stage.size()),
        lanes_(schedule.lanes.size()) {
    make_channels();
    for (size_t edge = 0; edge < schedule.edges.size(); ++edge) {
      const auto [from, to] = schedule.edges[edge];
      if (!schedule.crosses_lanes({from, to})) continue;
      const int down = channel_between(schedule.lane_of(from), schedule.lane_of(to));
      const int up = channel_between(schedule.lane_of(to), schedule.lane_of(from));
      // Edges are ascending, so the ports of a stage are too.
      of(from).targets.push_back({to, down, 2 * edge});
      of(to).sources.push_back({from, down, 2 * edge});
      of(to).gradient_targets.push_back({from, up, 2 * edge + 1});
      of(from).gradient_sources.push_back({to, up, 2 * edge + 1});
    }
    arrived_.resize(2 * schedule.edges.size() * micro_batches_);
  }

  std::vector<Lane> place() {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) ready_.push_back(static_cast<int>(lane));
    while (true) {
      while (!ready_.empty()) {
        const int lane = ready_.front();
        ready_.pop_front();
        run(lane);
      }
      if (!receive_early()) break;
    }
    std::vector<Lane> placed;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      TROIKA_ASSERT(lanes_[lane].next == schedule_.lanes[lane].size() && lanes_[lane].sends.empty(),
                    fmt::format("lane {} can't run to its end: the schedule must be valid", lane));
      placed.push_back(std::move(lanes_[lane].placed));
    }
    return placed;
  }

 private:
  struct Ports {
    std::vector<Port> sources, targets;                    // of activations
    std::vector<Port> gradient_sources, gradient_targets;  // of gradients
  };

  struct LaneState {
    size_t next = 0;  // in the lane as it was
    Lane placed;
    std::deque<std::pair<Action, Port>> sends;  // of the last pass, to be done before the next
  };

  Ports& of(int stage) { return ports_[static_cast<size_t>(stage)]; }
  size_t arrival(const Port& port, int micro_batch) const {
    return port.edge * micro_batches_ + static_cast<size_t>(micro_batch);
  }

  void make_channels() {
    std::vector<std::pair<int, int>> pairs;
    for (const Edge& edge : schedule_.edges) {
      if (!schedule_.crosses_lanes(edge)) continue;
      const int from = schedule_.lane_of(edge.from), to = schedule_.lane_of(edge.to);
      pairs.emplace_back(from, to);
      pairs.emplace_back(to, from);
    }
    std::ranges::sort(pairs);
    const auto repeated = std::ranges::unique(pairs);
    pairs.erase(repeated.begin(), repeated.end());
    for (const auto& [from, to] : pairs) {
      Channel channel;
      channel.from = from;
      channel.to = to;
      channels_.push_back(channel);
    }
  }

  int channel_between(int from, int to) const {
    const auto found = std::ranges::lower_bound(channels_, std::pair(from, to), {}, [](const Channel& each) {
      return std::pair(each.from, each.to);
    });
    return static_cast<int>(found - channels_.begin());
  }

  // Goes on with a lane until it is done or has to wait.
  void run(int number) {
    LaneState& lane = lanes_[static_cast<size_t>(number)];
    const Lane& actions = schedule_.lanes[static_cast<size_t>(number)];
    while (true) {
      while (!lane.sends.empty()) {
        if (!send(lane)) return;
      }
      if (lane.next == actions.size()) return;
      const Action& action = actions[lane.next];
      if (!receive_for(action)) return;
      lane.placed.push_back(action);
      ++lane.next;
      prepare_sends(action, lane);
    }
  }

  bool send(LaneState& lane) {
    const auto& [action, port] = lane.sends.front();
    Channel& channel = channels_[static_cast<size_t>(port.channel)];
    if (channel.full) {
      channel.sender_waits = true;
      full_.emplace_back(port.channel, ++channel.times_waited);
      return false;
    }
    channel.full = true;
    channel.receive = {action.op == Op::send_activation ? Op::receive_activation : Op::receive_gradient,
                       action.peer, action.micro_batch, action.stage};
    channel.arrival = arrival(port, action.micro_batch);
    if (channel.receiver_waits) {
      channel.receiver_waits = false;
      ready_.push_back(channel.to);
    }
    lane.placed.push_back(action);
    lane.sends.pop_front();
    return true;
  }

  // The receives that the pass needs and that don't stand yet.
  bool receive_for(const Action& action) {
    const bool backward = has_input_part(action.op);
    if (!backward && action.op != Op::forward) return true;
    const Ports& ports = of(action.stage);
    for (const Port& port : backward ? ports.gradient_sources : ports.sources) {
      while (!arrived_[arrival(port, action.micro_batch)]) {
        Channel& channel = channels_[static_cast<size_t>(port.channel)];
        if (!channel.full) {
          channel.receiver_waits = true;
          return false;
        }
        receive(channel);
      }
    }
    return true;
  }

  // What the channel holds, at the present place of its lane.
  void receive(Channel& channel) {
    lanes_[static_cast<size_t>(channel.to)].placed.push_back(channel.receive);
    arrived_[channel.arrival] = true;
    channel.full = false;
    if (channel.sender_waits) {
      channel.sender_waits = false;
      ready_.push_back(channel.from);
    }
  }

  void prepare_sends(const Action& action, LaneState& lane) {
    const Ports& ports = of(action.stage);
    if (action.op == Op::forward) {
      for (const Port& port : ports.targets) {
        lane.sends.push_back({{Op::send_activation, action.stage, action.micro_batch, port.peer}, port});
      }
    }
    if (has_input_part(action.op)) {
      for (const Port& port : ports.gradient_targets) {
        lane.sends.push_back({{Op::send_gradient, action.stage, action.micro_batch, port.peer}, port});
      }
    }
  }

  // Of the channels that a sender waits for, the one waited for longest.
  bool receive_early() {
    while (!full_.empty()) {
      const auto [number, times_waited] = full_.front();
      full_.pop_front();
      Channel& channel = channels_[static_cast<size_t>(number)];
      if (!channel.sender_waits || channel.times_waited != times_waited) continue;
      receive(channel);
      return true;
    }
    return false;
  }

  const Schedule& schedule_;
  size_t micro_batches_;
  std::vector<Ports> ports_;  // per stage
  std::vector<LaneState> lanes_;
  std::vector<Channel> channels_;         // ascending by (from, to)
  std::vector<bool> arrived_;             // per direction of an edge and micro-batch: its receive is placed
  std::deque<int> ready_;                 // lanes that can go on
  std::deque<std::pair<int, int>> full_;  // (channel, times_waited) of senders that wait or did
};

}  // namespace

Schedule with_messages(const Schedule& schedule) {
  if (schedule.stated.messages) return schedule;
  Schedule complete = schedule;
  complete.lanes = MessagePlacer(schedule).place();
  complete.stated.messages = true;
  return complete;
}

Schedule without_messages(const Schedule& schedule) {
  Schedule silent = schedule;
  silent.stated.messages = false;
  for (Lane& lane : silent.lanes) {
    std::erase_if(lane, [](const Action& action) { return is_message(action.op); });
  }
  return silent;
}

}  // namespace troika

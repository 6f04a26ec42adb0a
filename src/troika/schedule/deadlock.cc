#include "troika/schedule/deadlock.h"

#include <algorithm>

#include "troika/base/error.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

constexpr int64_t kMostLooks = 2'000'000;  // at waits, in the search for the shortest circle
constexpr size_t kShownLanes = 6;

// The circle that the first wait of each lane leads into.
std::vector<LaneRun::Wait> first_circle(const std::vector<std::vector<LaneRun::Wait>>& waits, int stuck,
                                        const ActionGraph& graph) {
  std::vector<LaneRun::Wait> path;
  std::vector<int> seen_at(waits.size(), -1);
  for (int lane = stuck; seen_at[static_cast<size_t>(lane)] < 0;) {
    seen_at[static_cast<size_t>(lane)] = static_cast<int>(path.size());
    path.push_back(waits[static_cast<size_t>(lane)].front());
    lane = graph.lane(path.back().needed);
    if (const int start = seen_at[static_cast<size_t>(lane)]; start >= 0) {
      path.erase(path.begin(), path.begin() + start);
      break;
    }
  }
  return path;
}

// The shortest circle through one lane that has fewer than `limit` lanes, or nothing. Breadth first.
std::vector<LaneRun::Wait> circle_through(int start, const std::vector<std::vector<LaneRun::Wait>>& waits,
                                          size_t limit, const ActionGraph& graph, int64_t& looks) {
  std::vector<const LaneRun::Wait*> came_by(waits.size(), nullptr);  // per lane: the wait that leads to it
  std::vector<int> level{start}, next;
  for (size_t length = 1; length < limit && !level.empty(); ++length) {
    next.clear();
    for (const int lane : level) {
      for (const auto& wait : waits[static_cast<size_t>(lane)]) {
        --looks;
        const int other = graph.lane(wait.needed);
        auto& by = came_by[static_cast<size_t>(other)];
        if (by != nullptr) continue;
        by = &wait;
        if (other != start) {
          next.push_back(other);
          continue;
        }
        std::vector<LaneRun::Wait> circle;
        const LaneRun::Wait* back = &wait;
        while (true) {
          circle.push_back(*back);
          if (back->lane == start) break;
          back = came_by[static_cast<size_t>(back->lane)];
        }
        std::ranges::reverse(circle);
        return circle;
      }
    }
    std::swap(level, next);
  }
  return {};
}

}  // namespace

LaneRun::LaneRun(const ActionGraph& graph, const LaneMessages* messages, int lanes, int buffer_depth)
    : graph_(graph), messages_(messages), depth_(buffer_depth) {
  const auto count = static_cast<size_t>(lanes);
  for (int lane = 0; lane < lanes; ++lane) next_.push_back(graph.first_of(lane));
  // A lane waits for one action at a time, so the lists of who waits for an action are linked through lanes.
  std::vector<int> first_waiting(static_cast<size_t>(graph.size()), -1), next_waiting(count, -1);
  std::vector<int> ready, looked(count, 0);
  for (int lane = lanes - 1; lane >= 0; --lane) ready.push_back(lane);
  while (!ready.empty()) {
    const int lane = ready.back();
    ready.pop_back();
    const auto at = static_cast<size_t>(lane);
    int blocker = -1;
    while (advance(lane, looked, blocker)) {
      int& waiting = first_waiting[static_cast<size_t>(next_[at] - 1)];
      for (; waiting >= 0; waiting = next_waiting[static_cast<size_t>(waiting)]) ready.push_back(waiting);
    }
    if (blocker < 0) continue;
    next_waiting[at] = first_waiting[static_cast<size_t>(blocker)];
    first_waiting[static_cast<size_t>(blocker)] = lane;
  }
}

// Does the lane's next action. False if the lane is at its end or must wait, then for `blocker`.
bool LaneRun::advance(int lane, std::vector<int>& looked, int& blocker) {
  const auto at = static_cast<size_t>(lane);
  const int number = next_[at];
  if (number == graph_.first_of(lane + 1)) return false;
  const auto needed = graph_.needs(number);
  // What was found finished stays so: a lane that was woken goes on where it stopped.
  for (int& look = looked[at]; static_cast<size_t>(look) < needed.size(); ++look) {
    blocker = needed[static_cast<size_t>(look)];
    if (!done(blocker)) return false;
  }
  blocker = room_after(number);
  if (blocker >= 0 && !done(blocker)) return false;
  blocker = -1;
  looked[at] = 0;
  ++next_[at];
  return true;
}

// What must be finished before there is room for a message; -1 if there is. A blocking send is done together
// with its receive, so what stands before the receive comes first.
int LaneRun::room_after(int number) const {
  if (messages_ == nullptr || depth_ == kUnlimited || !is_send(graph_.action(number).op)) return -1;
  const int receive = messages_->receive_before(number, depth_);
  if (depth_ > 0 || receive < 0) return receive;
  return receive > graph_.first_of(graph_.lane(receive)) ? receive - 1 : -1;
}

bool LaneRun::finished() const {
  for (size_t lane = 0; lane < next_.size(); ++lane) {
    if (next_[lane] < graph_.first_of(static_cast<int>(lane) + 1)) return false;
  }
  return true;
}

std::vector<LaneRun::Wait> LaneRun::waits_of(int lane) const {
  std::vector<Wait> waits;
  const int number = next_[static_cast<size_t>(lane)];
  if (number == graph_.first_of(lane + 1)) return waits;
  for (const int needed : graph_.needs(number)) {
    if (!done(needed)) waits.push_back({lane, number, needed});
  }
  if (const int before = room_after(number); before >= 0 && !done(before)) {
    waits.push_back({lane, number, messages_->receive_before(number, depth_)});
  }
  return waits;
}

std::vector<LaneRun::Wait> LaneRun::shortest_circle() const {
  std::vector<std::vector<Wait>> waits;
  std::vector<int> stuck;
  for (int lane = 0; lane < static_cast<int>(next_.size()); ++lane) {
    waits.push_back(waits_of(lane));
    if (!waits.back().empty()) stuck.push_back(lane);
  }
  TROIKA_ASSERT(!stuck.empty(), "the lanes ran to their end");
  std::vector<Wait> best = first_circle(waits, stuck.front(), graph_);
  int64_t looks = kMostLooks;
  for (const int lane : stuck) {
    if (looks < 0 || best.size() <= 2) break;
    looks -= static_cast<int64_t>(waits.size());
    auto circle = circle_through(lane, waits, best.size(), graph_, looks);
    if (!circle.empty()) best = std::move(circle);
  }
  std::ranges::rotate(best, std::ranges::min_element(best, {}, &Wait::lane));
  return best;
}

int smallest_depth(const ActionGraph& graph, const LaneMessages& messages, int lanes) {
  const auto runs = [&](int depth) { return LaneRun(graph, &messages, lanes, depth).finished(); };
  // More room never hurts, and room for all messages of a pair is room without limit.
  if (!runs(kUnlimited)) return kUnlimited;
  if (runs(0)) return 0;
  int low = 0, high = 1;
  while (!runs(high)) {
    low = high;
    high = std::min(messages.most_of_a_pair(), high * 2);
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (runs(middle) ? high : low) = middle;
  }
  return high;
}

std::string describe(const std::vector<LaneRun::Wait>& circle, const ActionGraph& graph) {
  std::string text;
  for (size_t i = 0; i < circle.size() && i < kShownLanes; ++i) {
    const auto& [lane, action, needed] = circle[i];
    text += fmt::format("{}lane {} waits at step {} ({}) for {}", i == 0 ? "" : "; ", lane,
                        action - graph.first_of(lane), to_string(graph.action(action)),
                        to_string(graph.action(needed)));
  }
  const auto last_lane = graph.lane(circle.back().needed);
  if (circle.size() > kShownLanes) {
    text += fmt::format("; and so on over {} lanes, back to lane {}", circle.size(), last_lane);
  }
  return text;
}

}  // namespace troika

#include "troika/comm/inproc/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "troika/base/cpu.h"
#include "troika/base/text.h"

namespace troika::inproc {

std::string ranks_text(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

World::World(int ranks, const GroupOptions& options)
    : deadline_(to_duration(options.deadline_seconds)),
      may_spin_(ranks <= usable_cores()),
      states_(static_cast<size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) end_of_wait(rank);
}

const std::string* World::among_text(std::span<const int> ranks) {
  const std::lock_guard lock(texts_mutex_);
  return &*texts_.insert(" among " + ranks_text(ranks)).first;
}

void World::abort(int rank, std::exception_ptr cause) {
  {
    const std::lock_guard lock(cause_mutex_);
    if (cause_rank_ < 0) {
      cause_rank_ = rank;
      aborted_at_.store(Clock::now().time_since_epoch().count());
    }
    if (cause_rank_ == rank && !cause_) cause_ = std::move(cause);
  }
  aborted_.store(true);
  for (RankState& state : states_) state.bell.ring();
  watcher_.ring();
}

void World::wait_until_untouched() {
  for (RankState& state : states_) {
    while (state.touching.load()) std::this_thread::yield();
  }
}

std::exception_ptr World::cause(int* rank) {
  const std::lock_guard lock(cause_mutex_);
  *rank = cause_rank_;
  if (cause_rank_ >= 0 && !cause_) {
    return std::make_exception_ptr(Error("left a sum under way by an exception, and hid that exception"));
  }
  return cause_;
}

void World::end(int rank) {
  state(rank).ended.store(true);
  for (RankState& state : states_) {
    if (state.sleeping.load()) state.bell.ring();
  }
  watcher_.ring();
}

World::Chain World::follow(int rank) {
  Chain chain{rank, last_sign(rank)};
  for (int steps = 0; steps <= ranks(); ++steps) {
    const int next = state(chain.end).waits_for.load();
    if (next < 0) return chain;
    chain.end = next;
    chain.alive = std::max(chain.alive, last_sign(next));
  }
  chain.end = -1;
  return chain;
}

std::string World::last_words(int rank) {
  RankState& state = this->state(rank);
  const std::lock_guard lock(state.said_mutex);
  if (!state.said.empty()) {
    return state.said_step < 0 ? state.said : fmt::format("step {}, {}", state.said_step, state.said);
  }
  const Call call = state.last_call.load();
  return call == Call::none ? "nothing yet" : std::string(name_of(call));
}

std::string World::call_text(int rank) {
  const Call call = state(rank).call.load();
  std::string text(name_of(call));
  if (call == Call::receive) text += fmt::format(" from rank {}", state(rank).call_peer.load());
  if (const std::string* among = state(rank).call_among.load()) text += *among;
  return text;
}

// What all ranks but `without` do, those that do the same together: "; ranks 0, 1 wait in barrier; rank 3 has
// ended".
std::string World::others_text(int without) {
  using OneAndSeveral = std::pair<std::string, std::string>;
  std::map<OneAndSeveral, std::vector<int>> doing;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == without) continue;
    OneAndSeveral what;
    if (state(rank).ended.load()) {
      what = {"has ended", "have ended"};
    } else if (state(rank).call.load() != Call::none) {
      const std::string call = call_text(rank);
      what = {"waits in " + call, "wait in " + call};
    } else {
      const std::string last = last_words(rank);
      what = {"works, last: " + last, "work, last: " + last};
    }
    doing[what].push_back(rank);
  }
  std::string text;
  for (const auto& [what, who] : doing) {
    text += fmt::format("; {} {}", ranks_text(who), who.size() == 1 ? what.first : what.second);
  }
  return text;
}

std::string World::silence_report(int silent_from) {
  const Chain chain = follow(silent_from);
  const std::string duration = human_seconds(seconds_since(chain.alive));
  if (chain.end < 0) return fmt::format("the ranks wait for each other for {}{}", duration, others_text(-1));
  return fmt::format("rank {} is silent for {}, last: {}{}", chain.end,
                     human_seconds(seconds_since(last_sign(chain.end))), last_words(chain.end),
                     others_text(chain.end));
}

}  // namespace troika::inproc

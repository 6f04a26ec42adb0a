// All thread ranks of a run, whatever groups they form: who is alive, who waits for whom, and why it all
// ended if it did. A rank may be in many groups (group.h), but it is one thread: it sleeps, waits and fails
// once. Ranks are numbered as in the whole run here.
//
// Threading: everything here is used by all rank threads at once; each member says who writes it. Whoever
// publishes something stores it (sequentially consistent) and then rings the ranks that sleep; whoever sleeps
// says so first and then looks once more. So no wake-up is lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "troika/base/clock.h"
#include "troika/base/error.h"
#include "troika/comm/inproc/futex.h"
#include "troika/comm/inproc/operation.h"
#include "troika/comm/rank_group.h"

namespace troika::inproc {

class ThreadRequest;

/// What went wrong between ranks; the text names them, so nobody puts a rank before it.
class GroupError : public Error {
 public:
  using Error::Error;
};

/// Ends a rank because another one has failed; never the first cause.
class GroupAborted : public Error {
 public:
  using Error::Error;
};

/// "rank 1" or "ranks 0, 2".
std::string ranks_text(std::span<const int> ranks);

struct RankState {
  alignas(64) std::atomic<bool> sleeping{false};  // written by the rank when it sleeps
  Bell bell;                                      // rung by peers

  alignas(64) std::atomic<bool> touching{false};  // the rank reads or writes its peers' elements right now
  std::atomic<Clock::rep> last_sign{0};           // of life
  std::atomic<Clock::rep> longest_pass{0};        // between two signs, while not waiting
  std::atomic<Call> call{Call::none};             // that the rank is in
  std::atomic<Call> last_call{Call::none};
  std::atomic<int> call_peer{-1};                       // of a receive
  std::atomic<const std::string*> call_among{nullptr};  // the members of the call's group; null: all ranks
  std::atomic<int> waits_for{-1};                       // the first rank that is missing
  std::atomic<bool> ended{false};

  std::vector<ThreadRequest*> under_way;  // in any group, own slice not summed yet; the rank's own, in order

  std::mutex said_mutex;  // guards the next two
  std::string said;
  int64_t said_step = -1;
};

class World {
 public:
  World(int ranks, const GroupOptions& options);

  int ranks() const { return static_cast<int>(states_.size()); }
  bool may_spin() const { return may_spin_; }
  RankState& state(int rank) { return states_[static_cast<size_t>(rank)]; }

  /// " among ranks 0, 2"; stays where it is as long as the world does.
  const std::string* among_text(std::span<const int> ranks);

  bool aborted() const { return aborted_.load(); }

  /// Ends all groups; the first cause stays. Without a cause: `rank` is on its way out by an exception that
  /// will be given later by a second call.
  void abort(int rank, std::exception_ptr cause);

  /// After abort(): returns when no rank touches another one's elements any more, so that the caller may free
  /// its own.
  void wait_until_untouched();

  /// The first cause, and the rank it comes from; null if there is none.
  std::exception_ptr cause(int* rank);
  Clock::time_point aborted_at() const { return Clock::time_point(Clock::duration(aborted_at_.load())); }

  void end(int rank);

  /// Rung when a rank ends or all is aborted.
  Bell& watcher() { return watcher_; }

  /// By the rank itself: it begins something. What it did since its last sign is a pass.
  void sign_of_life(int rank) {
    RankState& own = state(rank);
    const Clock::rep now = Clock::now().time_since_epoch().count();
    const Clock::rep pass = now - own.last_sign.load(std::memory_order_relaxed);
    if (pass > own.longest_pass.load(std::memory_order_relaxed)) {
      own.longest_pass.store(pass, std::memory_order_relaxed);
    }
    own.last_sign.store(now, std::memory_order_relaxed);
  }
  /// By the rank itself: it has waited, or just begun, which is no pass.
  void end_of_wait(int rank) {
    state(rank).last_sign.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// How long `rank` may be silent: the deadline, or longer if its passes are known to be long. -1: the
  /// deadline.
  Clock::duration patience(int rank) {
    constexpr int kPasses = 10;
    if (rank < 0) return deadline_;
    const Clock::duration longest(state(rank).longest_pass.load(std::memory_order_relaxed));
    return std::max(deadline_, kPasses * longest);
  }
  Clock::time_point last_sign(int rank) {
    return Clock::time_point(Clock::duration(state(rank).last_sign.load(std::memory_order_relaxed)));
  }

  /// Follows who waits for whom from `rank` on: a rank that waits is as alive as the one it waits for.
  struct Chain {
    int end = 0;              // the rank that waits for nobody, or -1: they wait in a circle
    Clock::time_point alive;  // the last sign of life on the way
  };
  Chain follow(int rank);

  /// "rank 2 is silent for 30 s, last: step 12, backward; ranks 0, 1 wait in all_reduce_sum".
  std::string silence_report(int silent_from);
  /// "step 12, backward".
  std::string last_words(int rank);
  /// "receive from rank 2 among ranks 0, 2".
  std::string call_text(int rank);

 private:
  std::string others_text(int without);

  Clock::duration deadline_;
  bool may_spin_;
  std::vector<RankState> states_;

  std::mutex texts_mutex_;  // guards the next
  std::set<std::string> texts_;

  std::atomic<bool> aborted_{false};
  std::atomic<Clock::rep> aborted_at_{0};
  Bell watcher_;
  std::mutex cause_mutex_;  // guards the next two
  std::exception_ptr cause_;
  int cause_rank_ = -1;
};

}  // namespace troika::inproc

// What the thread ranks of a group share: who has arrived, who is alive, the messages between them, and why
// it all ended if it did.
//
// Threading: everything here is used by all rank threads at once; each member says who writes it. Whoever
// publishes something stores it (sequentially consistent) and then rings the ranks that sleep; whoever sleeps
// says so first and then looks once more. So no wake-up is lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "troika/base/clock.h"
#include "troika/base/error.h"
#include "troika/comm/inproc/futex.h"
#include "troika/comm/inproc/operation.h"
#include "troika/comm/rank_group.h"

namespace troika::inproc {

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

/// What a rank shows its peers in one collective. Two per rank, used in turn: a rank can't come back to the
/// first one before all have arrived at the second, and so have read the first.
struct alignas(64) Slot {
  std::atomic<uint64_t> ticket{0};  // number of the collective; stored last
  Operation operation;
  void* data = nullptr;
  double weight = 1;
};

/// One all-reduce under way.
struct SharedRequest {
  struct alignas(64) Part {
    std::atomic<bool> posted{false};
    std::atomic<bool> summed{false};  // the slice of this rank, in everybody's elements
    Operation operation;
    void* data = nullptr;
  };
  explicit SharedRequest(int ranks) : parts(static_cast<size_t>(ranks)) {}
  std::vector<Part> parts;
  int taken = 0;  // by how many ranks; guarded by Group::requests_mutex_
};

struct Message {
  Operation operation;
  int64_t tag = 0;
  std::vector<std::byte> bytes;
};

/// Messages of one rank to one other, in order.
struct alignas(64) Mailbox {
  std::atomic<int64_t> sent{0};
  int64_t received = 0;  // the receiver's
  std::mutex mutex;      // guards the rest
  std::deque<Message> messages;
  std::vector<std::byte> spare;  // memory of a message that was received, for the next one
};

struct RankState {
  Slot slots[2];                                  // written by the rank, read by its peers
  alignas(64) std::atomic<uint64_t> finished{0};  // last collective whose slices this rank has written

  alignas(64) std::atomic<bool> sleeping{false};  // written by the rank when it sleeps
  Bell bell;                                      // rung by peers

  alignas(64) std::atomic<bool> touching{false};  // the rank reads or writes its peers' elements right now
  std::atomic<Clock::rep> last_sign{0};           // of life
  std::atomic<Clock::rep> longest_pass{0};        // between two signs, while not waiting
  std::atomic<Call> call{Call::none};             // that the rank is in
  std::atomic<Call> last_call{Call::none};
  std::atomic<int> call_peer{-1};  // of a receive
  std::atomic<int> waits_for{-1};  // the first rank that is missing
  std::atomic<bool> ended{false};

  std::mutex said_mutex;  // guards the next two
  std::string said;
  int64_t said_step = -1;
};

class Group {
 public:
  Group(int ranks, const GroupOptions& options);

  int ranks() const { return static_cast<int>(states_.size()); }
  bool may_spin() const { return may_spin_; }
  RankState& state(int rank) { return states_[static_cast<size_t>(rank)]; }
  Mailbox& mailbox(int from, int to) { return mailboxes_[static_cast<size_t>(from * ranks() + to)]; }

  /// The request number `index` (from 0) of every rank; made by the first that asks, forgotten when all have
  /// asked.
  std::shared_ptr<SharedRequest> request(uint64_t index);

  /// Wakes the peers of `rank` that sleep. Call it after what they wait for was stored.
  void ring_peers(int rank);

  bool aborted() const { return aborted_.load(); }

  /// Ends the group; the first cause stays. Without a cause: `rank` is on its way out by an exception that
  /// will be given later by a second call.
  void abort(int rank, std::exception_ptr cause);

  /// After abort(): returns when no rank touches another one's elements any more, so that the caller may free
  /// its own.
  void wait_until_untouched();

  /// The first cause, and the rank it comes from; null if there is none.
  std::exception_ptr cause(int* rank);
  Clock::time_point aborted_at() const { return Clock::time_point(Clock::duration(aborted_at_.load())); }

  void end(int rank);

  /// Rung when a rank ends or the group is aborted.
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
  /// "receive from rank 2".
  std::string call_text(int rank);

 private:
  std::string others_text(int without);

  Clock::duration deadline_;
  bool may_spin_;
  std::vector<RankState> states_;
  std::vector<Mailbox> mailboxes_;  // from x to

  std::mutex requests_mutex_;  // guards the next two
  std::deque<std::shared_ptr<SharedRequest>> requests_;
  uint64_t first_request_ = 0;

  std::atomic<bool> aborted_{false};
  std::atomic<Clock::rep> aborted_at_{0};
  Bell watcher_;
  std::mutex cause_mutex_;  // guards the next two
  std::exception_ptr cause_;
  int cause_rank_ = -1;
};

}  // namespace troika::inproc

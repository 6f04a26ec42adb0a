// The communicator between thread ranks: collectives over slots (collectives.cc), messages through mailboxes
// (messages.cc), all-reduces under way (requests.cc), sub-communicators (sub.cc).
//
// Threading: used by its rank's thread only. A call that leaves by an exception has ended all groups and
// waited until no peer touches this rank's elements.
#pragma once

#include <exception>
#include <vector>

#include "troika/comm/communicator.h"
#include "troika/comm/inproc/group.h"

namespace troika::inproc {

class ThreadRequest;

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank);

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::unique_ptr<Communicator> sub(std::span<const int> members) override;
  bool shares_memory() const override { return true; }
  void all_reduce_sum(Elements elements) override;
  void all_reduce_weighted_mean(Elements elements, double weight) override;
  void reduce_scatter_sum(Elements elements, Elements part) override;
  void all_gather(Elements part, Elements all) override;
  void broadcast(Elements elements, int root) override;
  void send(Elements elements, int to, int64_t tag) override;
  void receive(Elements elements, int from, int64_t tag) override;
  void barrier() override;
  std::unique_ptr<Request> start_all_reduce_sum(Elements elements) override;
  bool test(Request& request) override;
  void wait(Request& request) override;
  void say(std::string_view doing, int64_t step) override;

 private:
  friend class ThreadRequest;
  class Inside;    // while a call is under way
  class Touching;  // while the elements of peers are used

  /// Returns when missing(0) == size(). missing(r) is the first rank from r on that this rank waits for; once
  /// it has moved on, it never comes back. Meanwhile does this rank's part of the requests under way, of all
  /// its communicators: a peer may need that part before it does what this rank waits for.
  template <typename Missing>
  void wait_for(Missing missing);

  /// How long the missing ranks may stay silent from now on; ends all groups if one has ended or is silent
  /// for too long.
  template <typename Missing>
  Clock::duration time_left(Missing missing, int first);

  [[noreturn]] void give_up(const std::string& text);
  [[noreturn]] void leave_aborted();

  void check_elements(Elements elements, Call call) const;
  void check_peer(int peer, Call call) const;

  int world_rank(int rank) const { return group_->rank(rank); }
  /// " among ranks 0, 2"; nothing if these are all.
  std::string among() const { return group_->among() ? *group_->among() : ""; }

  // collectives.cc
  const Slot& slot(int rank) const { return group_->member(rank).slots[ticket_ & 1]; }
  void meet(const Operation& operation, void* data, double weight);
  void finish();
  /// Sets the members below to what the ranks show, from a byte on.
  void point_at(int64_t byte_offset);

  // requests.cc
  void progress();  // of all communicators of the rank
  void sum_own_slice(ThreadRequest& request);

  std::shared_ptr<Group> group_;
  World& world_;
  RankState& own_;
  Member& shown_;
  int rank_;
  uint64_t ticket_ = 0;  // of the last collective
  uint64_t next_request_ = 0;

  // By rank; kept between calls, so that a small sum doesn't allocate.
  std::vector<const void*> sources_;
  std::vector<void*> results_;
  std::vector<double> weights_;
};

/// Marks a call from entry to exit, for the reports of others; throws if the groups have ended.
class ThreadCommunicator::Inside {
 public:
  Inside(ThreadCommunicator& communicator, Call call) : Inside(communicator, call, -1) {}
  Inside(ThreadCommunicator& communicator, Call call, int peer)
      : Inside(communicator, call, peer, communicator.group_->among()) {}
  Inside(ThreadCommunicator& communicator, Call call, int peer, const std::string* among);
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside();

 private:
  ThreadCommunicator& communicator_;
};

/// A rank that leaves by an exception waits for this to end, or this sees that all has ended and
/// doesn't begin.
class ThreadCommunicator::Touching {
 public:
  explicit Touching(ThreadCommunicator& communicator) : own_(communicator.own_) {
    own_.touching.store(true);
    if (communicator.world_.aborted()) {
      own_.touching.store(false);
      communicator.leave_aborted();
    }
  }
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;
  ~Touching() { own_.touching.store(false, std::memory_order_release); }

 private:
  RankState& own_;
};

template <typename Missing>
Clock::duration ThreadCommunicator::time_left(Missing missing, int first) {
  Clock::duration left = std::chrono::hours(1);
  const Clock::time_point now = Clock::now();
  const int own = world_rank(rank_);
  for (int peer = first; peer < size(); peer = missing(peer + 1)) {
    const int rank = world_rank(peer);
    if (world_.state(rank).ended.load() && missing(peer) == peer) {
      give_up(fmt::format("rank {} has ended, rank {} waits in {}", rank, own, world_.call_text(own)));
    }
    const World::Chain chain = world_.follow(rank);
    const Clock::duration still = chain.alive + world_.patience(chain.end) - now;
    if (still <= Clock::duration::zero() && missing(peer) == peer) give_up(world_.silence_report(rank));
    left = std::min(left, still);
  }
  return left;
}

template <typename Missing>
void ThreadCommunicator::wait_for(Missing missing) {
  constexpr auto kSpin = std::chrono::microseconds(50);
  constexpr int kLooksPerClock = 64;
  int next = missing(0);
  if (next == size()) return;
  if (world_.may_spin()) {
    const Clock::time_point until = Clock::now() + kSpin;
    do {
      for (int look = 0; look < kLooksPerClock; ++look) {
        next = missing(next);
        if (next == size()) return;
        relax();
      }
      progress();
    } while (Clock::now() < until && !world_.aborted());
  }
  while (true) {
    own_.sleeping.store(true);
    const uint32_t seen = own_.bell.now();
    progress();
    next = missing(next);
    if (next == size()) break;
    if (world_.aborted()) leave_aborted();
    own_.waits_for.store(world_rank(next));
    own_.bell.sleep(seen, time_left(missing, next));
  }
  own_.sleeping.store(false);
  own_.waits_for.store(-1);
  world_.end_of_wait(world_rank(rank_));
}

}  // namespace troika::inproc

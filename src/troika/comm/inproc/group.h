// What the members of one group of thread ranks share: who has arrived at which call, their sums under way,
// the messages between them, and the groups of some of them that are being made. Members are numbered from 0
// here; rank() says which rank of the world each is.
//
// Threading: as world.h.
#pragma once

#include <deque>
#include <memory>

#include "troika/comm/inproc/world.h"

namespace troika::inproc {

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
  explicit SharedRequest(size_t members) : parts(members) {}
  std::vector<Part> parts;
  size_t taken = 0;  // by how many members; guarded by Group::mutex_
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

/// What a member shows the others in collectives.
struct Member {
  Slot slots[2];                                  // written by the member, read by the others
  alignas(64) std::atomic<uint64_t> finished{0};  // last collective whose slices this member has written
};

class Group;

/// A group of some members of another one, while it is being made.
struct Founding {
  std::vector<int> members;  // numbered as in the other group, ascending
  std::shared_ptr<Group> group;
  std::vector<std::atomic<bool>> here;  // which of them have come
  size_t to_come;                       // how many have not; guarded by the other group's mutex
};

class Group {
 public:
  /// `among`: world.among_text(ranks), or null if these are all ranks.
  Group(World& world, std::vector<int> ranks, const std::string* among);
  /// All ranks of the world.
  explicit Group(World& world);

  World& world() { return world_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int rank(int member) const { return ranks_[static_cast<size_t>(member)]; }
  const std::vector<int>& ranks() const { return ranks_; }
  const std::string* among() const { return among_; }
  Member& member(int member) { return members_[static_cast<size_t>(member)]; }
  RankState& state(int member) { return *states_[static_cast<size_t>(member)]; }
  Mailbox& mailbox(int from, int to) { return mailboxes_[static_cast<size_t>(from * size() + to)]; }

  /// The request number `index` (from 0) of every member; made by the first that asks, forgotten when all
  /// have asked.
  std::shared_ptr<SharedRequest> request(uint64_t index);

  /// The founding that `member` comes to; made by the first that comes. Not if one of `members` is at another
  /// founding that `member` belongs to as well: then that one, and who is at it.
  struct Joined {
    std::shared_ptr<Founding> founding;
    int disagrees = -1;
  };
  Joined join_founding(int member, const std::vector<int>& members, const std::string* among);

  /// Wakes the other members that sleep. Call it after what they wait for was stored.
  void ring_peers(int member);

 private:
  World& world_;
  std::vector<int> ranks_;
  const std::string* among_;
  std::vector<RankState*> states_;
  std::vector<Member> members_;
  std::vector<Mailbox> mailboxes_;  // from x to

  std::mutex mutex_;  // guards the rest
  std::deque<std::shared_ptr<SharedRequest>> requests_;
  uint64_t first_request_ = 0;
  std::vector<std::shared_ptr<Founding>> at_;  // by member: the founding at which it waits for others
};

}  // namespace troika::inproc

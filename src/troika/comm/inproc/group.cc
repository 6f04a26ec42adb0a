#include "troika/comm/inproc/group.h"

#include <numeric>

namespace troika::inproc {
namespace {

std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks(static_cast<size_t>(world.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Group::Group(World& world, std::vector<int> ranks, const std::string* among)
    : world_(world),
      ranks_(std::move(ranks)),
      among_(among),
      members_(ranks_.size()),
      mailboxes_(ranks_.size() * ranks_.size()),
      at_(ranks_.size()) {
  for (int rank : ranks_) states_.push_back(&world.state(rank));
}

Group::Group(World& world) : Group(world, all_ranks(world), nullptr) {}

std::shared_ptr<SharedRequest> Group::request(uint64_t index) {
  const std::lock_guard lock(mutex_);
  TROIKA_ASSERT(index >= first_request_, "a request number was asked for twice");
  const uint64_t place = index - first_request_;
  if (place == requests_.size()) requests_.push_back(std::make_shared<SharedRequest>(ranks_.size()));
  std::shared_ptr<SharedRequest> request = requests_.at(place);
  ++request->taken;
  while (!requests_.empty() && requests_.front()->taken == ranks_.size()) {
    requests_.pop_front();
    ++first_request_;
  }
  return request;
}

Group::Joined Group::join_founding(int member, const std::vector<int>& members, const std::string* among) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Founding> founding;
  for (int other : members) {
    const std::shared_ptr<Founding>& theirs = at_[static_cast<size_t>(other)];
    if (!theirs) continue;
    if (theirs->members == members) {
      founding = theirs;
    } else if (std::binary_search(theirs->members.begin(), theirs->members.end(), member)) {
      return {theirs, other};
    }
    // Else it makes a group without this member first, and comes here then.
  }
  if (!founding) {
    std::vector<int> ranks;
    for (int other : members) ranks.push_back(rank(other));
    founding =
        std::make_shared<Founding>(Founding{members, std::make_shared<Group>(world_, std::move(ranks), among),
                                            std::vector<std::atomic<bool>>(members.size()), members.size()});
  }
  at_[static_cast<size_t>(member)] = founding;
  const auto place = std::lower_bound(members.begin(), members.end(), member) - members.begin();
  founding->here[static_cast<size_t>(place)].store(true);
  if (--founding->to_come == 0) {
    for (int other : members) at_[static_cast<size_t>(other)].reset();
  }
  return {founding};
}

void Group::ring_peers(int member) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != member && state(peer).sleeping.load()) state(peer).bell.ring();
  }
}

}  // namespace troika::inproc

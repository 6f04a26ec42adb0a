// Sub-communicators: the members come to a founding, which the first of them makes; each waits for the
// others.
#include "troika/comm/inproc/thread_communicator.h"

namespace troika::inproc {

std::unique_ptr<Communicator> ThreadCommunicator::sub(std::span<const int> span) {
  const std::vector<int> members(span.begin(), span.end());
  const auto place = std::find(members.begin(), members.end(), rank_);
  const bool ascending =
      std::adjacent_find(members.begin(), members.end(), std::greater_equal()) == members.end();
  if (place == members.end() || !ascending || members.front() < 0 || members.back() >= size()) {
    fail(
        "sub of members [{}], called by member {}: they must ascend, be among 0 to {}, and the caller one of "
        "them",
        fmt::join(members, ", "), rank_, size() - 1);
  }
  const auto ranks_of = [this](const std::vector<int>& some) {
    std::vector<int> ranks;
    for (int member : some) ranks.push_back(world_rank(member));
    return ranks;
  };
  const std::string* among = world_.among_text(ranks_of(members));
  const Inside inside(*this, Call::sub, -1, among);
  const auto [founding, other] = group_->join_founding(rank_, members, among);
  if (other >= 0) {
    const bool first = rank_ < other;
    give_up(fmt::format(
        "rank {} calls sub of {}, rank {} calls sub of {}; every member must give the same lists "
        "in the same order",
        world_rank(first ? rank_ : other), ranks_text(ranks_of(first ? members : founding->members)),
        world_rank(first ? other : rank_), ranks_text(ranks_of(first ? founding->members : members))));
  }
  group_->ring_peers(rank_);
  wait_for([&, &founding = founding](int from) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] >= from && !founding->here[i].load()) return members[i];
    }
    return size();
  });
  return std::make_unique<ThreadCommunicator>(founding->group, static_cast<int>(place - members.begin()));
}

}  // namespace troika::inproc

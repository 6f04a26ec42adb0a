// Collectives in at most two meetings. meet(): everybody shows its operation and its elements, and goes on
// when all are there. Then each rank does its slice of the work on everybody's elements, and finish() waits
// until all have.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "troika/base/split.h"
#include "troika/comm/inproc/kernels.h"
#include "troika/comm/inproc/slices.h"
#include "troika/comm/inproc/thread_communicator.h"

namespace troika::inproc {

void ThreadCommunicator::meet(const Operation& operation, void* data, double weight) {
  ++ticket_;
  Slot& shown = shown_.slots[ticket_ & 1];
  shown.operation = operation;
  shown.data = data;
  shown.weight = weight;
  shown.ticket.store(ticket_);
  group_->ring_peers(rank_);
  wait_for([this](int from) {
    int peer = from;
    while (peer < size() && slot(peer).ticket.load() == ticket_) ++peer;
    return peer;
  });
  for (int peer = 1; peer < size(); ++peer) {
    if (slot(peer).operation == slot(0).operation) continue;
    give_up(fmt::format(
        "rank {} calls {}, rank {} calls {}{}; every rank must make the same calls in the same order",
        world_rank(0), to_string(slot(0).operation), world_rank(peer), to_string(slot(peer).operation),
        among()));
  }
}

void ThreadCommunicator::finish() {
  shown_.finished.store(ticket_);
  group_->ring_peers(rank_);
  wait_for([this](int from) {
    int peer = from;
    while (peer < size() && group_->member(peer).finished.load() >= ticket_) ++peer;
    return peer;
  });
}

void ThreadCommunicator::point_at(int64_t byte_offset) {
  for (int peer = 0; peer < size(); ++peer) {
    const auto place = static_cast<size_t>(peer);
    results_[place] = static_cast<std::byte*>(slot(peer).data) + byte_offset;
    sources_[place] = results_[place];
    weights_[place] = slot(peer).weight;
  }
}

void ThreadCommunicator::all_reduce_sum(Elements elements) {
  check_elements(elements, Call::all_reduce_sum);
  const Inside inside(*this, Call::all_reduce_sum);
  meet({Call::all_reduce_sum, elements.type, elements.count}, elements.data, 1);
  const Range mine = line_share(elements, size(), rank_);
  if (size() > 1 && mine.size() > 0) {
    const Touching touching(*this);
    point_at(mine.begin * size_of(elements.type));
    sum(elements.type, sources_, results_, mine.size());
  }
  finish();
}

void ThreadCommunicator::all_reduce_weighted_mean(Elements elements, double weight) {
  check_elements(elements, Call::all_reduce_weighted_mean);
  if (elements.type == ElementType::int64)
    fail("all_reduce_weighted_mean of int64; it takes floating point types only");
  if (!(weight >= 0) || !std::isfinite(weight)) {
    fail("all_reduce_weighted_mean with weight {}; a weight is a finite number that is not negative", weight);
  }
  const Inside inside(*this, Call::all_reduce_weighted_mean);
  meet({Call::all_reduce_weighted_mean, elements.type, elements.count}, elements.data, weight);
  const Range mine = line_share(elements, size(), rank_);
  if (mine.size() > 0) {
    const Touching touching(*this);
    point_at(mine.begin * size_of(elements.type));
    weighted_mean(elements.type, sources_, weights_, results_, mine.size());
  }
  finish();
}

void ThreadCommunicator::reduce_scatter_sum(Elements elements, Elements part) {
  check_elements(elements, Call::reduce_scatter_sum);
  check_elements(part, Call::reduce_scatter_sum);
  const Range mine = share({0, elements.count}, size(), rank_);
  if (part.count != mine.size() || part.type != elements.type) {
    fail("reduce_scatter_sum of {} {} into a part of {} {}; with {} ranks the part of rank {} is {} {}",
         elements.count, name_of(elements.type), part.count, name_of(part.type), size(), world_rank(rank_),
         mine.size(), name_of(elements.type));
  }
  const Inside inside(*this, Call::reduce_scatter_sum);
  meet({Call::reduce_scatter_sum, elements.type, elements.count}, elements.data, 1);
  if (mine.size() > 0) {
    const Touching touching(*this);
    point_at(mine.begin * size_of(elements.type));
    void* const result[] = {part.data};
    sum(elements.type, sources_, result, mine.size());
  }
  finish();
}

void ThreadCommunicator::all_gather(Elements part, Elements all) {
  check_elements(part, Call::all_gather);
  check_elements(all, Call::all_gather);
  const Range mine = share({0, all.count}, size(), rank_);
  if (part.count != mine.size() || part.type != all.type) {
    fail("all_gather of a part of {} {} into {} {}; with {} ranks the part of rank {} is {} {}", part.count,
         name_of(part.type), all.count, name_of(all.type), size(), world_rank(rank_), mine.size(),
         name_of(all.type));
  }
  const Inside inside(*this, Call::all_gather);
  meet({Call::all_gather, all.type, all.count}, part.data, 1);
  if (all.count > 0) {
    const Touching touching(*this);
    for (int peer = 0; peer < size(); ++peer) {
      const Range theirs = share({0, all.count}, size(), peer);
      void* to = static_cast<std::byte*>(all.data) + theirs.begin * size_of(all.type);
      if (theirs.size() > 0 && to != slot(peer).data) {
        std::memcpy(to, slot(peer).data, static_cast<size_t>(theirs.size() * size_of(all.type)));
      }
    }
  }
  finish();
}

void ThreadCommunicator::broadcast(Elements elements, int root) {
  check_elements(elements, Call::broadcast);
  check_peer(root, Call::broadcast);
  const Inside inside(*this, Call::broadcast);
  meet({Call::broadcast, elements.type, elements.count, world_rank(root)}, elements.data, 1);
  if (rank_ != root && elements.count > 0) {
    const Touching touching(*this);
    std::memcpy(elements.data, slot(root).data, static_cast<size_t>(elements.bytes()));
  }
  finish();
}

void ThreadCommunicator::barrier() {
  const Inside inside(*this, Call::barrier);
  meet({Call::barrier}, nullptr, 1);
}

}  // namespace troika::inproc

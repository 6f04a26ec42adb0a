#include "troika/comm/inproc/thread_communicator.h"

namespace troika::inproc {

ThreadCommunicator::Inside::Inside(ThreadCommunicator& communicator, Call call, int peer,
                                   const std::string* among)
    : communicator_(communicator) {
  RankState& own = communicator.own_;
  communicator.world_.sign_of_life(communicator.world_rank(communicator.rank_));
  own.call_peer.store(peer, std::memory_order_relaxed);
  own.call_among.store(among, std::memory_order_release);
  own.call.store(call, std::memory_order_relaxed);
  own.last_call.store(call, std::memory_order_relaxed);
  if (communicator.world_.aborted()) communicator.leave_aborted();
}

ThreadCommunicator::Inside::~Inside() {
  communicator_.own_.call.store(Call::none, std::memory_order_relaxed);
}

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<Group> group, int rank)
    : group_(std::move(group)),
      world_(group_->world()),
      own_(group_->state(rank)),
      shown_(group_->member(rank)),
      rank_(rank),
      sources_(static_cast<size_t>(group_->size())),
      results_(sources_.size()),
      weights_(sources_.size()) {}

void ThreadCommunicator::give_up(const std::string& text) {
  world_.abort(world_rank(rank_), std::make_exception_ptr(GroupError(text)));
  own_.sleeping.store(false);
  world_.wait_until_untouched();
  throw GroupError(text);
}

void ThreadCommunicator::leave_aborted() {
  own_.sleeping.store(false);
  world_.wait_until_untouched();
  int rank = -1;
  std::string text = "an exception";
  if (const std::exception_ptr cause = world_.cause(&rank)) {
    try {
      std::rethrow_exception(cause);
    } catch (const std::exception& error) {
      text = error.what();
    } catch (...) {
    }
  }
  throw GroupAborted(fmt::format("ended because of rank {}: {}", rank, text));
}

void ThreadCommunicator::check_elements(Elements elements, Call call) const {
  TROIKA_ASSERT(elements.count >= 0, fmt::format("{} of {} elements", name_of(call), elements.count));
  TROIKA_ASSERT(elements.data != nullptr || elements.count == 0,
                fmt::format("{} of {} elements at null", name_of(call), elements.count));
}

void ThreadCommunicator::check_peer(int peer, Call call) const {
  if (peer < 0 || peer >= size()) {
    if (!group_->among())
      fail("{} names rank {}, but the ranks are 0 to {}", name_of(call), peer, size() - 1);
    fail("{} names member {}, but the members are 0 to {}: {}", name_of(call), peer, size() - 1,
         ranks_text(group_->ranks()));
  }
}

void ThreadCommunicator::say(std::string_view doing, int64_t step) {
  world_.sign_of_life(world_rank(rank_));
  const std::lock_guard lock(own_.said_mutex);
  own_.said.assign(doing);
  own_.said_step = step;
}

}  // namespace troika::inproc

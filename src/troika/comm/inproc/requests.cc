// All-reduces under way. Each rank posts its elements; once all have, each sums its slice whenever it next
// calls test(), wait() or anything else that waits; a request is finished when all slices are summed.
#include "troika/base/split.h"
#include "troika/comm/inproc/kernels.h"
#include "troika/comm/inproc/slices.h"
#include "troika/comm/inproc/thread_communicator.h"

namespace troika::inproc {

class ThreadRequest : public Request {
 public:
  ThreadRequest(ThreadCommunicator& owner, std::shared_ptr<SharedRequest> shared, Elements elements)
      : owner_(owner),
        shared_(std::move(shared)),
        elements_(elements),
        exceptions_(std::uncaught_exceptions()) {}

  // An unfinished request ends all groups: peers would write to elements that are about to go.
  ~ThreadRequest() override {
    std::erase(owner_.own_.under_way, this);
    if (finished_) return;
    const int rank = owner_.world_rank(owner_.rank_);
    std::exception_ptr cause;  // none yet if an exception is on its way to run_thread_ranks
    if (std::uncaught_exceptions() == exceptions_ && !owner_.world_.aborted()) {
      cause = std::make_exception_ptr(
          GroupError(fmt::format("rank {} drops a {} before it is finished; call wait() first", rank,
                                 to_string(shared_->parts[static_cast<size_t>(owner_.rank_)].operation))));
    }
    owner_.world_.abort(rank, cause);
    owner_.world_.wait_until_untouched();
  }

 private:
  friend class ThreadCommunicator;

  // The first rank from `from` on that hasn't posted, or summed.
  int not_posted(int from) const {
    size_t peer = static_cast<size_t>(from);
    while (peer < shared_->parts.size() && shared_->parts[peer].posted.load()) ++peer;
    return static_cast<int>(peer);
  }
  int not_summed(int from) const {
    size_t peer = static_cast<size_t>(from);
    while (peer < shared_->parts.size() && shared_->parts[peer].summed.load()) ++peer;
    return static_cast<int>(peer);
  }

  // The ranks it waits for: before its own slice is summed, those that haven't posted.
  int missing(int from) const {
    const bool own_summed = shared_->parts[static_cast<size_t>(owner_.rank_)].summed.load();
    return own_summed ? not_summed(from) : not_posted(from);
  }

  ThreadCommunicator& owner_;
  std::shared_ptr<SharedRequest> shared_;
  Elements elements_;
  int exceptions_;
  bool finished_ = false;
};

std::unique_ptr<Request> ThreadCommunicator::start_all_reduce_sum(Elements elements) {
  check_elements(elements, Call::start_all_reduce_sum);
  const Inside inside(*this, Call::start_all_reduce_sum);
  auto request = std::make_unique<ThreadRequest>(*this, group_->request(next_request_++), elements);
  SharedRequest::Part& part = request->shared_->parts[static_cast<size_t>(rank_)];
  part.operation = {Call::start_all_reduce_sum, elements.type, elements.count};
  part.data = elements.data;
  own_.under_way.push_back(request.get());
  part.posted.store(true);
  group_->ring_peers(rank_);
  return request;
}

void ThreadCommunicator::progress() {
  std::vector<ThreadRequest*>& under_way = own_.under_way;
  for (size_t i = 0; i < under_way.size();) {
    ThreadRequest& request = *under_way[i];
    if (request.not_posted(0) < request.owner_.size()) {
      ++i;
      continue;
    }
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
    request.owner_.sum_own_slice(request);
  }
}

void ThreadCommunicator::sum_own_slice(ThreadRequest& request) {
  std::vector<SharedRequest::Part>& parts = request.shared_->parts;
  for (size_t peer = 1; peer < parts.size(); ++peer) {
    if (parts[peer].operation == parts[0].operation) continue;
    give_up(fmt::format(
        "rank {} calls {}, rank {} calls {}{}; every rank must start the same sums in the same order",
        world_rank(0), to_string(parts[0].operation), world_rank(static_cast<int>(peer)),
        to_string(parts[peer].operation), among()));
  }
  const Range mine = line_share(request.elements_, size(), rank_);
  if (size() > 1 && mine.size() > 0) {
    const Touching touching(*this);
    const int64_t offset = mine.begin * size_of(request.elements_.type);
    for (size_t peer = 0; peer < parts.size(); ++peer) {
      results_[peer] = static_cast<std::byte*>(parts[peer].data) + offset;
      sources_[peer] = results_[peer];
    }
    sum(request.elements_.type, sources_, results_, mine.size());
  }
  parts[static_cast<size_t>(rank_)].summed.store(true);
  group_->ring_peers(rank_);
}

bool ThreadCommunicator::test(Request& any) {
  auto& request = static_cast<ThreadRequest&>(any);
  TROIKA_ASSERT(&request.owner_ == this, "a request of another communicator");
  if (request.finished_) return true;
  // No sign of life: a loop that only tests must not look alive to the ranks it waits for.
  if (world_.aborted()) leave_aborted();
  progress();
  request.finished_ = request.not_summed(0) == size();
  if (request.finished_) return true;
  own_.call_among.store(group_->among(), std::memory_order_release);
  own_.call.store(Call::wait, std::memory_order_relaxed);
  const auto missing = [&](int from) { return request.missing(from); };
  time_left(missing, missing(0));
  own_.call.store(Call::none, std::memory_order_relaxed);
  return false;
}

void ThreadCommunicator::wait(Request& any) {
  auto& request = static_cast<ThreadRequest&>(any);
  TROIKA_ASSERT(&request.owner_ == this, "a request of another communicator");
  if (request.finished_) return;
  const Inside inside(*this, Call::wait);
  wait_for([&](int from) { return request.not_posted(from); });
  progress();
  wait_for([&](int from) { return request.not_summed(from); });
  request.finished_ = true;
}

}  // namespace troika::inproc

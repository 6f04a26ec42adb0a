// Messages: copied into the mailbox of the pair, so that the sender never waits.
#include <cstring>

#include "troika/comm/inproc/thread_communicator.h"

namespace troika::inproc {

void ThreadCommunicator::send(Elements elements, int to, int64_t tag) {
  check_elements(elements, Call::send);
  check_peer(to, Call::send);
  const Inside inside(*this, Call::send, world_rank(to));
  Mailbox& box = group_->mailbox(rank_, to);
  Message message{{Call::send, elements.type, elements.count}, tag, {}};
  {
    const std::lock_guard lock(box.mutex);
    message.bytes.swap(box.spare);
  }
  const auto* bytes = static_cast<const std::byte*>(elements.data);
  message.bytes.assign(bytes, bytes + elements.bytes());
  {
    const std::lock_guard lock(box.mutex);
    box.messages.push_back(std::move(message));
  }
  box.sent.fetch_add(1);
  if (group_->state(to).sleeping.load()) group_->state(to).bell.ring();
}

void ThreadCommunicator::receive(Elements elements, int from, int64_t tag) {
  check_elements(elements, Call::receive);
  check_peer(from, Call::receive);
  const Inside inside(*this, Call::receive, world_rank(from));
  Mailbox& box = group_->mailbox(from, rank_);
  wait_for([&](int first) { return first > from || box.sent.load() > box.received ? size() : from; });
  Message message;
  {
    const std::lock_guard lock(box.mutex);
    message = std::move(box.messages.front());
    box.messages.pop_front();
  }
  ++box.received;
  if (message.operation.type != elements.type || message.operation.count != elements.count ||
      message.tag != tag) {
    give_up(fmt::format("rank {} sends {} {} with tag {}, rank {} expects {} {} with tag {}{}",
                        world_rank(from), message.operation.count, name_of(message.operation.type),
                        message.tag, world_rank(rank_), elements.count, name_of(elements.type), tag,
                        among()));
  }
  if (elements.count > 0) std::memcpy(elements.data, message.bytes.data(), message.bytes.size());
  const std::lock_guard lock(box.mutex);
  box.spare.swap(message.bytes);
}

}  // namespace troika::inproc

// Communicator: what the ranks of one axis say to each other. Knows no schedule and no tensor: spans of
// elements. Ranks are numbered from 0 here; messages to people number them as in the whole run.
//
// Threading: one object per rank, used by that rank's thread only. Collectives must be called by all ranks in
// the same order; a rank that calls something else, or with another size or type, ends all of them with both
// sides named. Every wait has a deadline (GroupOptions::deadline_seconds after the peer's last sign of life).
// Sums are taken in rank order, so the same numbers on the same number of ranks give the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace troika {

enum class ElementType { float32, float64, bfloat16, int64 };

int64_t size_of(ElementType type);
std::string_view name_of(ElementType type);

/// `count` elements at `data`; data may be null when count is 0. Does not own them.
struct Elements {
  void* data = nullptr;
  int64_t count = 0;
  ElementType type = ElementType::float32;
  int64_t bytes() const { return count * size_of(type); }
};

/// An all-reduce under way; finished by test() returning true or by wait(). Goes before
/// its communicator.
class Request {
 public:
  virtual ~Request() = default;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// A communicator of some of the ranks: `members` are ranks of this one, ascending, each once, and this
  /// rank is among them; its ranks are their places in `members`. Collective over `members` only: each of
  /// them makes the same sub-communicators in the same order. It must not outlive this one.
  virtual std::unique_ptr<Communicator> sub(std::span<const int> members) = 0;

  /// Ranks are threads of one process: a pointer sent as a number can be read by the receiver.
  virtual bool shares_memory() const = 0;

  /// Elementwise sum over ranks, in place, the same bits on every rank. bfloat16 is summed in float32 and
  /// rounded once.
  virtual void all_reduce_sum(Elements elements) = 0;

  /// In place: sum over ranks of (weight * value) / sum of weights. A rank with weight 0 contributes nothing,
  /// even if its elements are NaN. All weights 0: the result is 0. Floating point types only.
  virtual void all_reduce_weighted_mean(Elements elements, double weight) = 0;

  /// Rank r gets part r of the sum (troika::share of the elements: uneven is fine) in `part`.
  virtual void reduce_scatter_sum(Elements elements, Elements part) = 0;

  /// `all` gets every rank's `part`, in rank order; part r must have the size of share r of `all`.
  virtual void all_gather(Elements part, Elements all) = 0;

  virtual void broadcast(Elements elements, int root) = 0;

  /// Never blocks: the message is copied out. `tag` is checked, not matched: messages of a pair arrive in
  /// order.
  virtual void send(Elements elements, int to, int64_t tag) = 0;

  /// Blocks until the next message of that sender is here; its size, type and tag must be as expected.
  virtual void receive(Elements elements, int from, int64_t tag) = 0;

  virtual void barrier() = 0;

  /// all_reduce_sum that others may finish while this rank computes on. Started in the same order on every
  /// rank; the elements are not touched until test() or wait() says that it is finished.
  virtual std::unique_ptr<Request> start_all_reduce_sum(Elements elements) = 0;

  /// Does the part of this rank if all have come; true if the request is finished. Never blocks.
  virtual bool test(Request& request) = 0;
  virtual void wait(Request& request) = 0;

  /// "step 12, backward": goes into the message if this rank is silent or the others wait for it. Cheap; a
  /// sign of life, to the ranks of all communicators.
  virtual void say(std::string_view doing, int64_t step) = 0;
};

}  // namespace troika

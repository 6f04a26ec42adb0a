// validate(): is this schedule one that can run and gives the gradients of a training step? Every (stage,
// micro-batch) forward once, backward once (both parts), in an order that can run; what is stated is
// complete; messages match in order; no deadlock for the given buffers; weight versions and memory within
// their limits. No torch, no clock: users' files are checked with it before a run, instead of a hang in it.
// Pure; thread-safe; linear in the number of actions.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

inline constexpr int kUnlimited = std::numeric_limits<int>::max();

struct ValidateOptions {
  // Messages that a directed pair of lanes can hold that are sent and not yet received; a send to a full one
  // waits. 0: blocking sends, which wait for their receive. Counts only where messages are stated.
  int buffer_depth = kUnlimited;
  std::optional<double>
      memory_limit;  // of every lane's peak `held`, in whole-lane micro-batches (liveness.h)
};

/// One thing that is wrong: where it stands (step = place in the lane, from 0; -1: it stands nowhere), and
/// why.
struct Fault {
  int lane = -1;
  int step = -1;
  Action action;
  std::string reason;
};

struct Verdict {
  std::vector<Fault> faults;  // in reading order, at most kMostFaults
  bool valid() const { return faults.empty(); }
};

inline constexpr int kMostFaults = 20;

Verdict validate(const Schedule& schedule, const ValidateOptions& options = {});

/// The smallest buffer depth with which a schedule whose messages are stated doesn't deadlock, or kUnlimited
/// if it does with any. `schedule` must be valid with unlimited buffers.
int needed_buffer_depth(const Schedule& schedule);

/// The grid of lanes around the fault with its place marked ("<-- here"), and the reason below.
std::string explain(const Schedule& schedule, const Fault& fault);

/// Throws Error with explain() of the first fault if there is one. `name` names the schedule in the message.
void require_valid(const Schedule& schedule, const std::string& name, const ValidateOptions& options = {});

}  // namespace troika

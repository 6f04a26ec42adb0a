// AfterSends: the lane a pass writes, where something new has to follow an action but not its sends: a
// message stands just after its producer, so that the other lane doesn't wait for more than it needs.
#pragma once

#include <utility>
#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

class AfterSends {
 public:
  /// The next action of the lane as it was.
  void keep(const Action& action) {
    if (action.op != Op::send_activation && action.op != Op::send_gradient) flush();
    lane_.push_back(action);
  }

  /// Follows what is there and the sends that come next.
  void add(const Action& action) { waiting_.push_back(action); }

  Lane finish() {
    flush();
    return std::move(lane_);
  }

 private:
  void flush() {
    lane_.insert(lane_.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
  }

  Lane lane_, waiting_;
};

}  // namespace troika

// The faults that the checks of validate() find, kept in reading order and never more than are shown.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "troika/schedule/validate.h"

namespace troika {

class FaultList {
 public:
  void add(int lane, int step, const Action& action, std::string reason) {
    const auto at = std::ranges::upper_bound(faults_, std::pair(lane, step), std::less<>(),
                                             [](const Fault& f) { return std::pair(f.lane, f.step); });
    faults_.insert(at, Fault{lane, step, action, std::move(reason)});
    if (faults_.size() > static_cast<size_t>(kMostFaults)) faults_.pop_back();
  }
  bool any() const { return !faults_.empty(); }
  std::vector<Fault> take() { return std::move(faults_); }

 private:
  std::vector<Fault> faults_;
};

}  // namespace troika

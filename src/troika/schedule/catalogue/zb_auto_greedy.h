// One order of zb-auto's search, made by a rule. Inside zb-auto only. Pure; thread-safe.
#pragma once

#include <functional>

#include "troika/schedule/catalogue/zb_auto_order.h"

namespace troika::zb_auto {

/// How many micro-batches a lane has in flight (F done, I not): as the memory allows, p-s, 1.5 (p-s) or
/// 2 (p-s) - 1.
enum class Depth { limit, one, one_and_half, two };

/// How many W may be pending before one comes first: as the memory allows, s, or 2 s.
enum class Lag { limit, one, two };

/// The rule by which a lane that is free chooses its next pass. What no choice changes: an F only within the
/// limit, a W when nothing else will come.
struct Policy {
  Depth depth = Depth::limit;
  Lag lag = Lag::limit;
  bool alternate = true;      // F and I both ready: the one that was not last; else I
  bool free_memory = false;   // at the limit a pending W comes before an I
  int overrun_quarters = 0;   // of a W that is put into a wait: how much longer than the wait it may be
  Ticks idle_allowance = -1;  // a lane waits for an I that is on its way while it has idled no more than this
  bool idle_before_f = false;  // and does so when an F is ready, not only when a W is
};

struct Made {
  Order order;
  Score score;
};

Made make_order(const Problem& problem, const Policy& policy);

/// The rules worth a try, the most useful ones first. Stops when `use` says false.
void for_each_policy(const Problem& problem, const std::function<bool(const Policy&)>& use);

}  // namespace troika::zb_auto

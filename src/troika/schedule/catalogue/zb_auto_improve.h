// Local search of zb-auto: passes on the longest chain change places. Inside zb-auto only. Pure; thread-safe.
#pragma once

#include "troika/schedule/catalogue/zb_auto_greedy.h"

namespace troika::zb_auto {

/// The best order found from `made` with `tries` changes; never a worse one. Draws from a generator of its
/// own with a fixed seed, so the same input gives the same output.
Made improve_order(const Problem& problem, Made made, int64_t tries);

}  // namespace troika::zb_auto

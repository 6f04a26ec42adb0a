// Which elements a rank sums. Pure; thread-safe.
#pragma once

#include <algorithm>

#include "troika/base/split.h"
#include "troika/comm/communicator.h"

namespace troika::inproc {

/// The rank's share of `elements` in whole cache lines (if they start on one), so that two ranks don't write
/// to one.
inline Range line_share(Elements elements, int ranks, int rank) {
  const int64_t per_line = 64 / size_of(elements.type);
  const Range lines = share({0, (elements.count + per_line - 1) / per_line}, ranks, rank);
  return {std::min(lines.begin * per_line, elements.count), std::min(lines.end * per_line, elements.count)};
}

}  // namespace troika::inproc

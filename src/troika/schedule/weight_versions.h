// Which version of its weights a stage uses for each micro-batch, in schedules that update within their
// window. Pure; thread-safe. Schedules are valid ones.
#pragma once

#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

/// By micro-batch: the optimizer steps of `stage` before its forward, or, with vertical sync, those of the
/// first stage before that one's (Harlap et al., 2018, arXiv:1806.03377, section 3.3).
std::vector<int> versions_of_forwards(const Schedule& schedule, int stage, bool vertical_sync = false);

/// How many versions `stage` must keep, the newest among them, so that each micro-batch has its own at every
/// pass: the newest ones, without a gap.
int versions_to_keep(const Schedule& schedule, int stage, const std::vector<int>& versions);

}  // namespace troika

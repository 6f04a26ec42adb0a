// Which cores this process may use, and pinning a rank's thread to its own. Thread-safe.
#pragma once

namespace troika {

/// Cores by affinity, not more than the control group's CPU quota; at least 1.
int usable_cores();

/// Pins the calling thread to the cores of `rank` out of `ranks` (neighbouring cores, by hwloc's order). Does
/// nothing if there are more ranks than cores: then the system's scheduler knows better.
void pin_to_cores_of_rank(int rank, int ranks);

/// Lets the calling thread run on every core that the process started with again.
void unpin();

}  // namespace troika

#include "troika/base/cpu.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "troika/base/split.h"

namespace troika {
namespace {

// Taken when the library is loaded, before any thread is pinned.
const cpu_set_t kCoresAtStart = [] {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_SET(0, &cores);
  return cores;
}();

// "max 100000" or "150000 100000" (microseconds of CPU per period) in the control group, version 2.
double quota_cores() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  double least = 1e9;
  while (std::getline(groups, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string group = line.substr(3);
    while (true) {
      std::ifstream in("/sys/fs/cgroup" + group + "/cpu.max");
      double quota = 0, period = 0;
      if (in >> quota >> period && period > 0) least = std::min(least, quota / period);
      if (group.empty() || group == "/") break;
      group.resize(group.rfind('/'));
    }
  }
  return least;
}

// The usable cores in hwloc's order, in which neighbours share caches.
std::vector<int> cores_in_order() {
  std::vector<int> cores;
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) == 0) {
    if (hwloc_topology_load(topology) == 0) {
      hwloc_obj_t unit = nullptr;
      while ((unit = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, unit)) != nullptr) {
        if (CPU_ISSET(unit->os_index, &kCoresAtStart)) cores.push_back(static_cast<int>(unit->os_index));
      }
    }
    hwloc_topology_destroy(topology);
  }
  if (cores.empty()) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &kCoresAtStart)) cores.push_back(core);
    }
  }
  return cores;
}

}  // namespace

int usable_cores() {
  const double quota = std::ceil(quota_cores() - 1e-6);
  return std::max(1, static_cast<int>(std::min<double>(CPU_COUNT(&kCoresAtStart), quota)));
}

void pin_to_cores_of_rank(int rank, int ranks) {
  static const std::vector<int> cores = cores_in_order();
  const auto count = static_cast<int64_t>(cores.size());
  if (ranks > count || ranks > usable_cores()) return;
  const Range mine = share({0, count}, ranks, rank);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int64_t i = mine.begin; i < mine.end; ++i) CPU_SET(cores[static_cast<size_t>(i)], &set);
  sched_setaffinity(0, sizeof set, &set);  // a refusal costs speed, not correctness
}

void unpin() { sched_setaffinity(0, sizeof kCoresAtStart, &kCoresAtStart); }

}  // namespace troika

#include "troika/base/memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace troika {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// "VmHWM:   1234 kB" in /proc/self/status, "MemTotal: ..." in /proc/meminfo; 0 if absent.
uint64_t kilobyte_field(const char* file, const std::string& name) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, name.size(), name) == 0 && line[name.size()] == ':') {
      return std::stoull(line.substr(name.size() + 1)) * 1024;
    }
  }
  return 0;
}

uint64_t number_in(const std::string& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  return in >> value ? value : kNoLimit;  // the word "max" doesn't parse: no limit
}

struct GroupMemory {
  uint64_t limit = kNoLimit;
  uint64_t used = 0;
};

// The tightest limit on the way from this process's control group to the root (version 2, then version 1).
GroupMemory control_group_memory() {
  GroupMemory found;
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t second = line.find(':', line.find(':') + 1);
    const bool version_2 = line.rfind("0::", 0) == 0;
    if (!version_2 && line.find("memory") == std::string::npos) continue;
    std::string group = line.substr(second + 1);
    const std::string root = version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    while (true) {
      const std::string folder = root + group + "/";
      const uint64_t limit = number_in(folder + (version_2 ? "memory.max" : "memory.limit_in_bytes"));
      if (limit < found.limit) {
        const uint64_t used = number_in(folder + (version_2 ? "memory.current" : "memory.usage_in_bytes"));
        found = {limit, used == kNoLimit ? 0 : used};
      }
      if (group.empty() || group == "/") break;
      group.resize(group.rfind('/'));
    }
  }
  return found;
}

}  // namespace

uint64_t memory_limit_bytes() {
  return std::min(kilobyte_field("/proc/meminfo", "MemTotal"), control_group_memory().limit);
}

uint64_t memory_available_bytes() {
  const uint64_t machine = kilobyte_field("/proc/meminfo", "MemAvailable");
  const GroupMemory group = control_group_memory();
  if (group.limit == kNoLimit) return machine;
  return std::min(machine, group.limit - std::min(group.limit, group.used));
}

uint64_t peak_rss_bytes() { return kilobyte_field("/proc/self/status", "VmHWM"); }
uint64_t rss_bytes() { return kilobyte_field("/proc/self/status", "VmRSS"); }

void prefer_huge_pages() { ::setenv("THP_MEM_ALLOC_ENABLE", "1", 0); }

}  // namespace troika

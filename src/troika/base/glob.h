// Names by a shell's patterns: block*, block[12], ?. Threading: pure function.
#pragma once

#include <fnmatch.h>

#include <string>

namespace troika {

inline bool matches_glob(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace troika

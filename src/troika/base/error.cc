#include "troika/base/error.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace troika {

std::string system_message(int error_number) { return std::generic_category().message(error_number); }

void assertion_failed(const char* condition, const char* file, int line, const std::string& detail) {
  fmt::print(stderr, "troika: internal error at {}:{}: {} is false: {}\n", file, line, condition, detail);
  std::fflush(stderr);
  std::abort();
}

}  // namespace troika

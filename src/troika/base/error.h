// What goes wrong, in two kinds: a user's mistake or the outside world (Error, with a message that names
// what, where, expected, got and the way out), and a programmer's mistake (TROIKA_ASSERT, which ends the
// process). Threading: everything here may be used from any thread.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace troika {

/// A run or a check failed for a reason a user can act on. The command ends with exit status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The command, an option, a recipe key or a combination of them is wrong. Exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> text, Args&&... args) {
  throw UsageError(fmt::format(text, std::forward<Args>(args)...));
}

/// "No space left on device", without the number.
std::string system_message(int error_number);

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line,
                                   const std::string& detail);

}  // namespace troika

/// A programmer's mistake; on in every build. `detail` is a string, built only when it fails.
#define TROIKA_ASSERT(condition, detail)                                                    \
  do {                                                                                      \
    if (!(condition)) ::troika::assertion_failed(#condition, __FILE__, __LINE__, (detail)); \
  } while (false)

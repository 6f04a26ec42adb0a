// Torch's exceptions in words for a user: without the C++ stack, and running out of memory with a way out.
// Threading: pure functions; thread-safe.
#pragma once

#include <functional>
#include <string>

namespace troika {

/// What to print for a message of torch (without its stack). Text that it doesn't know is left as it is.
std::string explain_torch(const std::string& message);

/// Runs `work`; a c10::Error that leaves it becomes an Error with explain_torch's text. Others pass.
void with_plain_errors(const std::function<void()>& work);

}  // namespace troika

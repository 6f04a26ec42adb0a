// Turns what a command throws into a message on standard error and an exit status.
#pragma once

#include <functional>

namespace troika {

/// Runs `work`; 0, or 1 or 2 after printing "troika: <message>". Never throws.
int status_of(const std::function<int()>& work) noexcept;

}  // namespace troika

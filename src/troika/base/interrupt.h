// Ctrl-C: the first one asks for a clean end, the second one ends at once. Thread-safe.
#pragma once

namespace troika {

/// While it lives, SIGINT and SIGTERM only raise a flag; a second signal ends the process with the usual
/// status. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();
};

/// Whether a signal came while the guard that lives now has lived; false without one.
bool interrupted();

}  // namespace troika

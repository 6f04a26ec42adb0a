// Sleeping until someone rings, with a time limit (std::atomic::wait has none). Thread-safe.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "troika/base/clock.h"

namespace troika::inproc {

/// Tells the processor that this is a waiting loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// A counter to sleep on. The sleeper reads now(), checks what it waits for, and sleeps unless the bell rang
/// since.
class Bell {
 public:
  uint32_t now() const { return rings_.load(); }

  void ring() {
    rings_.fetch_add(1);
    ::syscall(SYS_futex, word(), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  /// Returns when the bell rang after `seen`, after `limit`, or for no reason.
  void sleep(uint32_t seen, Clock::duration limit) {
    if (limit <= Clock::duration::zero()) return;
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
    const timespec time{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    ::syscall(SYS_futex, word(), FUTEX_WAIT_PRIVATE, seen, &time, nullptr, 0);
  }

 private:
  uint32_t* word() { return reinterpret_cast<uint32_t*>(&rings_); }

  std::atomic<uint32_t> rings_{0};
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
};

}  // namespace troika::inproc

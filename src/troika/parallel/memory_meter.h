// MemoryMeter: how many bytes of tensors somebody holds, now and at most. Torch's CPU allocator is wrapped:
// what a thread allocates while a MeterScope is open on it is charged to that scope's meter, and credited to
// the same meter when it is freed, on whatever thread and however much later.
//
// So a tensor counts for who made it, as long as anybody holds it: an activation that another stage still
// needs is charged to the stage that handed it on, and never twice. Counted are the bytes that were asked
// for. Not counted: memory that libraries take past torch (MKL's and oneDNN's own scratch), what intra-op
// threads allocate (their thread has no meter), and what was allocated before the scope was opened.
//
// The allocator is wrapped once per process, when the first meter is made; that should be before other
// threads allocate, since torch keeps the pointer without a lock. From then on an allocation looks at a
// thread-local pointer, which can't be measured, and on a thread with a meter takes some 30 ns more, freeing
// included.
//
// Threading: a meter may be charged, credited and read by any number of threads. A scope belongs to its
// thread.
#pragma once

#include <cstdint>
#include <memory>

namespace troika {

namespace internal {
struct MeterAccount;
}

class MemoryMeter {
 public:
  MemoryMeter();

  int64_t current_bytes() const;
  int64_t peak_bytes() const;  // since the last restart_peak()
  /// The peak counts from what is held now.
  void restart_peak();

 private:
  friend class MeterScope;
  std::shared_ptr<internal::MeterAccount> account_;  // tensors that are charged to it may outlive the meter
};

/// From here to its end this thread's allocations are charged to `meter`, which outlives it and may be null:
/// to nobody. Nests: the innermost counts.
class MeterScope {
 public:
  explicit MeterScope(const MemoryMeter* meter);
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;
  ~MeterScope();

 private:
  const std::shared_ptr<internal::MeterAccount>* before_;
};

}  // namespace troika

#include "troika/parallel/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "troika/base/error.h"

namespace troika {
namespace internal {

struct MeterAccount {
  std::atomic<int64_t> current = 0, peak = 0;

  void charge(int64_t bytes) {
    const int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t most = peak.load(std::memory_order_relaxed);
    while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
  }
  void credit(int64_t bytes) { current.fetch_sub(bytes, std::memory_order_relaxed); }
};

}  // namespace internal

namespace {

using internal::MeterAccount;
using AccountPointer = std::shared_ptr<MeterAccount>;

/// What is charged to whom, by address. In parts with a lock each, because any thread may free.
class Charges {
 public:
  struct Charge {
    const void* address = nullptr;  // null: a free place
    int64_t bytes = 0;
    AccountPointer account;
  };

  void add(Charge charge) {
    Part& part = part_of(charge.address);
    const std::lock_guard lock(part.mutex);
    if (2 * (part.used + 1) > part.places.size()) grow(part);
    part.places[free_place(part, charge.address)] = std::move(charge);
    ++part.used;
  }

  /// Takes the charge of `address` out; one of no address if there is none.
  Charge take(const void* address) {
    Part& part = part_of(address);
    const std::lock_guard lock(part.mutex);
    if (part.used == 0) return {};
    const size_t mask = part.places.size() - 1;
    size_t at = hash(address) & mask;
    while (part.places[at].address != address) {
      if (part.places[at].address == nullptr) return {};
      at = (at + 1) & mask;
    }
    Charge found = std::move(part.places[at]);
    --part.used;
    close_gap(part, at);
    return found;
  }

 private:
  static constexpr size_t kParts = 64;
  struct alignas(64) Part {
    std::mutex mutex;
    std::vector<Charge> places;  // open addressing; a power of two, at most half full
    size_t used = 0;
  };

  static size_t hash(const void* address) {
    // Torch aligns to 64 bytes; the multiplier mixes what is above (Knuth).
    return (reinterpret_cast<uintptr_t>(address) >> 6) * 0x9E3779B97F4A7C15u >> 20;
  }
  Part& part_of(const void* address) { return parts_[hash(address) >> 32 & (kParts - 1)]; }

  static size_t free_place(const Part& part, const void* address) {
    const size_t mask = part.places.size() - 1;
    size_t at = hash(address) & mask;
    while (part.places[at].address != nullptr) at = (at + 1) & mask;
    return at;
  }

  static void grow(Part& part) {
    std::vector<Charge> old(std::max<size_t>(64, 2 * part.places.size()));
    old.swap(part.places);
    for (Charge& charge : old) {
      if (charge.address != nullptr) part.places[free_place(part, charge.address)] = std::move(charge);
    }
  }

  // Moves back what stands behind the gap and would no longer be found.
  static void close_gap(Part& part, size_t gap) {
    const size_t mask = part.places.size() - 1;
    part.places[gap] = {};
    for (size_t at = (gap + 1) & mask; part.places[at].address != nullptr; at = (at + 1) & mask) {
      const size_t wanted = hash(part.places[at].address) & mask;
      if (((at - wanted) & mask) < ((at - gap) & mask)) continue;
      part.places[gap] = std::move(part.places[at]);
      part.places[at] = {};
      gap = at;
    }
  }

  std::array<Part, kParts> parts_;
};

Charges& charges() {
  static auto* const all = new Charges;  // never deleted: tensors may be freed after main
  return *all;
}

// Of this thread's innermost scope; null: nobody counts.
thread_local const AccountPointer* t_account = nullptr;

// Leaves the memory to the allocator that was there before, and keeps what is charged in a book of its own:
// who takes raw memory and gives it back by its address (oneDNN does) must find it there as well.
class MeteredAllocator final : public c10::Allocator {
 public:
  explicit MeteredAllocator(c10::Allocator& wrapped) : wrapped_(wrapped) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = wrapped_.allocate(bytes);
    // What has more to it than an address can't be told from it when it is freed.
    if (t_account == nullptr || bytes == 0 || !wrapped_.is_simple_data_ptr(memory)) return memory;
    if (!memory.compare_exchange_deleter(wrapped_.raw_deleter(), &credit_and_free)) return memory;
    (*t_account)->charge(static_cast<int64_t>(bytes));
    charges().add({memory.get(), static_cast<int64_t>(bytes), *t_account});
    return memory;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &credit_and_free; }
  bool is_simple_data_ptr(const c10::DataPtr& memory) const override {
    return wrapped_.is_simple_data_ptr(memory);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static void install() {
    static auto* const metered = new MeteredAllocator(*c10::GetCPUAllocator());
    instance_ = metered;
    constexpr uint8_t kHighestPriority = 255;  // lower ones are ignored without a word
    c10::SetCPUAllocator(metered, kHighestPriority);
    TROIKA_ASSERT(c10::GetCPUAllocator() == metered, "torch has kept its own CPU allocator");
  }

 private:
  static void credit_and_free(void* memory) {
    if (memory == nullptr) return;  // as free() does: oneDNN gives back what it never had
    // Before it is free: then another thread may get the same address.
    const Charges::Charge charge = charges().take(memory);
    if (charge.account) charge.account->credit(charge.bytes);
    instance_->wrapped_.raw_deleter()(memory);
  }

  c10::Allocator& wrapped_;
  static MeteredAllocator* instance_;
};

MeteredAllocator* MeteredAllocator::instance_ = nullptr;

}  // namespace

MemoryMeter::MemoryMeter() : account_(std::make_shared<MeterAccount>()) {
  static std::once_flag once;
  std::call_once(once, &MeteredAllocator::install);
}

int64_t MemoryMeter::current_bytes() const { return account_->current.load(std::memory_order_relaxed); }
int64_t MemoryMeter::peak_bytes() const { return account_->peak.load(std::memory_order_relaxed); }
void MemoryMeter::restart_peak() {
  account_->peak.store(account_->current.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

MeterScope::MeterScope(const MemoryMeter* meter) : before_(t_account) {
  t_account = meter == nullptr ? nullptr : &meter->account_;
}

MeterScope::~MeterScope() { t_account = before_; }

}  // namespace troika

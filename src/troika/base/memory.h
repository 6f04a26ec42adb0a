// How much memory there is for this process and how much it has used. Thread-safe.
#pragma once

#include <cstdint>

namespace troika {

/// The smaller of the machine's memory and the control group's limit, in bytes.
uint64_t memory_limit_bytes();

/// What is free within that limit right now, in bytes (page cache counts as free).
uint64_t memory_available_bytes();

/// Largest resident set of this process so far, and the present one, in bytes.
uint64_t peak_rss_bytes();
uint64_t rss_bytes();

/// Lets LibTorch put its buffers from 2 MB on into huge pages, unless the user's environment has decided it
/// (THP_MEM_ALLOC_ENABLE). For a program's main(), before the first tensor and the first thread.
void prefer_huge_pages();

}  // namespace troika

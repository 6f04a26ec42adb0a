// The intra-op threads of a rank, for our own loops over memory. In a file of its own because torch's
// parallel loop is a template around an OpenMP pragma: what includes it must be compiled with OpenMP, or it
// runs on one thread without a word. Threading: called by a rank's thread, whose at::set_num_threads()
// counts.
#pragma once

#include <cstdint>
#include <functional>

namespace troika {

/// Calls part(begin, end) for consecutive parts of [0, count), each of at least `grain`, at the same time.
void in_parallel(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& part);

}  // namespace troika

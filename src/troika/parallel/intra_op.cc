#include "troika/parallel/intra_op.h"

#include <ATen/Parallel.h>

namespace troika {

void in_parallel(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& part) {
  at::parallel_for(0, count, grain, [&part](int64_t begin, int64_t end) { part(begin, end); });
}

}  // namespace troika

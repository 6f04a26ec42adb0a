// Three ranks (threads) hold different numbers of samples; all of them get the mean over all samples.
#include <troika/comm/communicator.h>
#include <troika/comm/rank_group.h>

#include <atomic>
#include <cstdio>

int main() {
  std::atomic<int> right = 0;
  troika::run_thread_ranks(3, {}, [&](troika::Communicator& ranks) {
    const double samples = ranks.rank();    // 0, 1 and 2 of them
    double mean = 10 * (ranks.rank() + 1);  // the mean of this rank's own: 10, 20, 30
    ranks.all_reduce_weighted_mean({&mean, 1, troika::ElementType::float64}, samples);
    if (mean == (0 * 10 + 1 * 20 + 2 * 30) / 3.0) ++right;
    if (ranks.rank() == 0) std::printf("the mean over 3 samples on 3 ranks is %.4f\n", mean);
  });
  return right == 3 ? 0 : 1;
}

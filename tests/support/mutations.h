// The classic mistakes of data-parallel training, on purpose: each must be caught by the comparisons that the
// tests rely on. They act on what goes in (losses, ranks' messages, weights), so no product code knows of
// them.
#pragma once

#include <atomic>
#include <vector>

#include "support/delegating_communicator.h"
#include "troika/parallel/replica.h"

namespace troika::test {

/// Sum instead of mean: the ranks' means are added up and never divided by the number of ranks.
inline Loss summed_over_ranks(Loss loss, int ranks) {
  return [loss, ranks](const Tensors& outputs, const Batch& batch) {
    LossValue value = loss(outputs, batch);
    value.weight /= ranks;
    return value;
  };
}

/// Mean of means: every piece counts the same, however many samples it has.
Loss unweighted(Loss loss);

/// Leaves out one bucket of the first step: this rank keeps its own sum there.
class SkippingCommunicator : public DelegatingCommunicator {
 public:
  SkippingCommunicator(Communicator& inner, int skipped) : DelegatingCommunicator(inner), skipped_(skipped) {}

  std::unique_ptr<Request> start_all_reduce_sum(Elements elements) override {
    if (started_++ != skipped_) return inner_.start_all_reduce_sum(elements);
    const char* data = static_cast<const char*>(elements.data);
    scratch_.assign(data, data + elements.bytes());
    return inner_.start_all_reduce_sum({scratch_.data(), elements.count, elements.type});
  }

 private:
  int skipped_;
  int started_ = 0;
  std::vector<char> scratch_;
};

/// A rank that starts from other weights: its first parameter is off by a little.
void perturb_weights(const std::vector<NamedTensor>& parameters);

}  // namespace troika::test

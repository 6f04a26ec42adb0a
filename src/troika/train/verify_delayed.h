// verify for asynchronous schedules: they are not equal to synchronous training, so they have a proof of
// their own, equality with a serial program of the same delayed updates. All verified steps are one window.
// Threading: as verify().
#pragma once

#include "troika/parallel/delayed_reference.h"
#include "troika/train/verify.h"

namespace troika {

/// The steps of `work` as one window; records come at its end, in order. As run_engine otherwise.
void run_window_engine(const VerifyWork& work, at::ScalarType dtype,
                       const std::function<void(const StepRecord&)>& on_step);

/// How many updates each stage lags behind: by the law that the schedule's name stands for; of a file's
/// schedule, by what it says itself.
Lag lag_of_work(const VerifyWork& work);

/// The first difference from the delayed reference; counts, and judges by the tolerance of, `result`.
std::optional<Difference> compare_with_delayed(const VerifyWork& work, at::ScalarType dtype,
                                               const Engine& engine, VerifyResult& result);

}  // namespace troika

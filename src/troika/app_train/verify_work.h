// A recipe's work as verify wants it. Internal to app_train.
#pragma once

#include "troika/train/verify.h"
#include "troika/train/workload.h"

namespace troika {

/// `work` must outlive the result.
VerifyWork verify_work(const Workload& work, int64_t steps);

}  // namespace troika

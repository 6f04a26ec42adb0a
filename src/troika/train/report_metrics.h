// A model's metrics beside those of the baselines, as a table for people. No torch. Threading: a pure
// function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troika/train/baseline.h"
#include "troika/train/metrics.h"

namespace troika {

struct MetricsReport {
  std::optional<Metrics> validation, test;
  std::vector<Baseline> baselines;
  double seconds_between_rows = 0;  // 0: unknown; steps ahead are then counted
};

/// A table of both parts, the errors of some steps ahead, and a sentence for each baseline that is better
/// than the model. Parts without metrics of the model are left out.
std::string metrics_text(const MetricsReport& report);

/// "+6 h", "+2 d", "+15 min", or "step 6" if the time of a row isn't known.
std::string step_label(int64_t step, double seconds_between_rows);

}  // namespace troika

// Traces for the drawings' tests, timed by the plain simulation: messages take no time.
#pragma once

#include <string>
#include <vector>

#include "support/naive_simulation.h"
#include "troika/base/error.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/schedule_text.h"

namespace troika {

struct PassSeconds {
  double forward = 1, backward = 2, input = 1, weight = 1;
};

inline Trace trace_of(const Schedule& schedule, const PassSeconds& seconds = {}) {
  const StageCost cost{.forward_s = seconds.forward,
                       .input_s = seconds.input,
                       .weight_s = seconds.weight,
                       .backward_s = seconds.backward};
  const CostModel costs = CostModel::uniform(schedule.num_stages(), cost);
  return {schedule.num_lanes(), NaiveSimulation(schedule, costs).run()};
}

/// One line of actions per rank, as in a schedule's text form.
inline Trace trace_of(const std::vector<std::string>& lines, const PassSeconds& seconds = {}) {
  return trace_of(parse_schedule(fmt::format("{}", fmt::join(lines, "\n")), "test"), seconds);
}

inline Trace one_f_one_b(int ranks, int micro_batches, const PassSeconds& seconds = {}) {
  return trace_of(make_schedule("1f1b", {.lanes = ranks, .micro_batches = micro_batches}), seconds);
}

}  // namespace troika

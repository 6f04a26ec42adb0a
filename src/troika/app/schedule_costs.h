// Measured costs as a file, `--costs FILE.json`:
//
//     {"stages": [{"forward": 0.011, "input": 0.010, "weight": 0.008, "output_bytes": 1048576}, ...],
//      "link": {"latency": 2e-5, "seconds_per_byte": 1e-9},
//      "links": [{"from": 0, "to": 1, "latency": 1e-4}]}
//
// Seconds and bytes of one stage and one micro-batch. One stage stands for all. Unknown keys are errors.
#pragma once

#include <string>

#include "troika/schedule/schedule.h"
#include "troika/simulate/cost_model.h"

namespace troika {

struct CostTable {
  std::string path;
  CostModel costs;
};

/// The keys, for --help.
std::string costs_help();

/// Throws Error naming the file and the key.
CostTable read_costs(const std::string& path);

/// Throws Error if the table is of another number of stages, or has a link of a lane that isn't there.
CostModel for_schedule(const CostTable& table, const Schedule& schedule);

}  // namespace troika

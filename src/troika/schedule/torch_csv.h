// Schedules as CSV in the form that PyTorch's pipelining loads and dumps: one row per lane, one action per
// cell, an empty cell is a bubble; its names for actions (0F0, 0B0, 0I0, 0W0, 0SEND_F0, 1RECV_F0,
// 0REDUCE_GRAD, OVERLAP_F_B as two actions in order). Its stages are a chain, one version of weights each;
// rows of forwards alone are of kind forward. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

struct TorchSchedule {
  Schedule schedule;
  std::vector<std::string> notes;  // what was dropped: "left out: 4 RESHARD, 4 UNSHARD (...)"
};

/// Throws Error naming row, column, the cell and what is known.
TorchSchedule parse_torch_csv(std::string_view text, const std::string& where);

/// What PyTorch has no name for (loads, optimizer steps, recompute) is left out and named in `notes` if
/// given. Throws Error naming an edge that is not of the chain.
std::string to_torch_csv(const Schedule& schedule, std::vector<std::string>* notes = nullptr);

}  // namespace troika

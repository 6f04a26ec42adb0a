// Schedules as CSV in the form that PyTorch's pipelining loads and dumps: one row per lane, one action per
// cell, an empty cell is a bubble; its names for actions (0F0, 0B0, 0I0, 0W0, 0SEND_F0, 1RECV_F0,
// 0REDUCE_GRAD, OVERLAP_F_B as two actions in order). Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troika/schedule/schedule.h"

namespace troika {

struct TorchSchedule {
  Schedule schedule;
  std::vector<std::string> notes;  // what was dropped: "4 UNSHARD and 4 RESHARD actions (...)"
};

/// Throws Error naming row, column, the cell and what is known.
TorchSchedule parse_torch_csv(std::string_view text, const std::string& where);

/// What PyTorch has no name for (loads, optimizer steps, recompute) is left out and named in `notes` if
/// given.
std::string to_torch_csv(const Schedule& schedule, std::vector<std::string>* notes = nullptr);

}  // namespace troika

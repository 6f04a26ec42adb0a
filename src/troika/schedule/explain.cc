#include <algorithm>
#include <string_view>

#include "troika/base/error.h"
#include "troika/schedule/validate.h"

namespace troika {
namespace {

constexpr size_t kColumns = 100;
constexpr int kLanesAround = 6;
constexpr std::string_view kHere = "  <-- here", kMissing = "  <-- missing";

// The part of the grid that is shown: half-open ranges of lanes and steps.
struct Window {
  int first_lane = 0, last_lane = 0;
  int first_step = 0, last_step = 0;
  size_t cell = 0;  // columns of the longest action in it
};

const Action* action_at(const Schedule& schedule, int lane, int step) {
  const Lane& actions = schedule.lanes[static_cast<size_t>(lane)];
  if (step < 0 || static_cast<size_t>(step) >= actions.size()) return nullptr;
  return &actions[static_cast<size_t>(step)];
}

// Of a column; 0 where all lanes are at their end.
size_t width_of(const Schedule& schedule, const Window& window, int step) {
  size_t width = 0;
  for (int lane = window.first_lane; lane < window.last_lane; ++lane) {
    if (const Action* action = action_at(schedule, lane, step)) {
      width = std::max({width, to_string(*action).size(), std::to_string(step).size()});
    }
  }
  return width;
}

// Of something missing: the first place that is about the same micro-batch of the same stage, else the start
// of the lane.
int step_near(const Schedule& schedule, const Fault& fault) {
  if (fault.step >= 0) return fault.step;
  const auto same_pass = [&](const Action& other) {
    return other.stage == fault.action.stage && other.micro_batch == fault.action.micro_batch;
  };
  const Lane& lane = schedule.lanes[static_cast<size_t>(fault.lane)];
  const auto found = std::ranges::find_if(lane, same_pass);
  return found == lane.end() ? 0 : static_cast<int>(found - lane.begin());
}

std::string lane_name(int lane) { return fmt::format("lane {}", lane); }

// As many steps around the place as fit in the width.
Window window_around(const Schedule& schedule, int lane, int step) {
  Window window;
  window.first_lane = std::max(0, lane - kLanesAround);
  window.last_lane =
      static_cast<int>(std::min<int64_t>(schedule.num_lanes(), int64_t{lane} + kLanesAround + 1));
  window.first_step = step;
  window.last_step = step;
  const size_t sides = lane_name(window.last_lane).size() + 1 + kMissing.size();
  const auto take = [&](int column) {
    if (column < 0) return false;
    const size_t width = width_of(schedule, window, column);
    const size_t cell = std::max(window.cell, width);
    const auto columns = static_cast<size_t>(window.last_step - window.first_step) + 1;
    if (width == 0 || sides + columns * (cell + 2) > kColumns) return false;
    window.cell = cell;
    return true;
  };
  bool left = true, right = true;
  while (left || right) {
    if (right && (right = take(window.last_step))) ++window.last_step;
    if (left && (left = take(window.first_step - 1))) --window.first_step;
  }
  return window;
}

void add_line(std::string& text, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
}

std::string grid(const Schedule& schedule, const Fault& fault) {
  const int near = step_near(schedule, fault);
  const Window window = window_around(schedule, fault.lane, near);
  const size_t name_width = lane_name(window.last_lane).size() + 1;
  std::string text, line = fmt::format("{:<{}}", "step", name_width);
  for (int step = window.first_step; step < window.last_step; ++step) {
    line += fmt::format(" {:<{}} ", step, window.cell);
  }
  if (window.first_lane > 0) add_line(text, fmt::format("({} lanes above)", window.first_lane));
  add_line(text, line);
  for (int lane = window.first_lane; lane < window.last_lane; ++lane) {
    line = fmt::format("{:<{}}", lane_name(lane), name_width);
    for (int step = window.first_step; step < window.last_step; ++step) {
      const Action* action = action_at(schedule, lane, step);
      const std::string name = action == nullptr ? "" : to_string(*action);
      const bool here = lane == fault.lane && step == fault.step && action != nullptr;
      line += fmt::format("{:<{}}", here ? ">" + name + "<" : " " + name, window.cell + 2);
    }
    if (lane == fault.lane) line += fault.step < 0 ? kMissing : kHere;
    add_line(text, line);
  }
  if (const int below = schedule.num_lanes() - window.last_lane; below > 0) {
    add_line(text, fmt::format("({} lanes below)", below));
  }
  return text;
}

}  // namespace

std::string explain(const Schedule& schedule, const Fault& fault) {
  if (fault.lane < 0 || fault.lane >= schedule.num_lanes()) return fault.reason;
  const std::string place =
      fault.step < 0 ? lane_name(fault.lane)
                     : fmt::format("{} in lane {}, step {}", to_string(fault.action), fault.lane, fault.step);
  return fmt::format("{}{}: {}", grid(schedule, fault), place, fault.reason);
}

}  // namespace troika

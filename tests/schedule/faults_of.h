// What validate() says of a schedule, as text, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "troika/base/error.h"
#include "troika/schedule/schedule_text.h"
#include "troika/schedule/validate.h"

namespace troika {

inline ValidateOptions depth(int buffer_depth) { return {.buffer_depth = buffer_depth, .memory_limit = {}}; }

inline ValidateOptions memory(double limit) { return {.buffer_depth = kUnlimited, .memory_limit = limit}; }

// "lane step action: reason", a line per fault.
inline std::string faults_of(const Schedule& schedule, const ValidateOptions& options = {}) {
  std::string all;
  for (const Fault& fault : validate(schedule, options).faults) {
    all += fmt::format("{} {} {}: {}\n", fault.lane, fault.step, to_string(fault.action), fault.reason);
  }
  return all;
}

inline std::string faults_in(const std::string& text, const ValidateOptions& options = {}) {
  return faults_of(parse_schedule(text, "test"), options);
}

// The first fault stands there and says that, and a schedule has as many as told.
inline void expect_fault(const std::string& text, const std::string& start, const std::string& part,
                         int count = 1, const ValidateOptions& options = {}) {
  const std::string faults = faults_in(text, options);
  EXPECT_TRUE(faults.starts_with(start + ": ")) << text << faults;
  EXPECT_NE(faults.find(part), std::string::npos) << text << faults;
  EXPECT_EQ(std::ranges::count(faults, '\n'), count) << text << faults;
}

// 1F1B by its rule, with messages just after producers and just before consumers.
inline Schedule one_f_one_b(int lanes, int micro_batches) {
  std::vector<int> layout;
  for (int lane = 0; lane < lanes; ++lane) layout.push_back(lane);
  Schedule schedule = empty_schedule(Kind::train, micro_batches, layout);
  schedule.stated.messages = lanes > 1;
  for (int s = 0; s < lanes; ++s) {
    Lane& lane = schedule.lanes[static_cast<size_t>(s)];
    const auto forward = [&](int mb) {
      if (s > 0) lane.push_back({Op::receive_activation, s, mb, s - 1});
      lane.push_back({Op::forward, s, mb});
      if (s + 1 < lanes) lane.push_back({Op::send_activation, s, mb, s + 1});
    };
    const auto backward = [&](int mb) {
      if (s + 1 < lanes) lane.push_back({Op::receive_gradient, s, mb, s + 1});
      lane.push_back({Op::backward, s, mb});
      if (s > 0) lane.push_back({Op::send_gradient, s, mb, s - 1});
    };
    const int warm_up = std::min(micro_batches, lanes - 1 - s);
    for (int mb = 0; mb < warm_up; ++mb) forward(mb);
    for (int mb = 0; mb < micro_batches; ++mb) {
      if (mb + warm_up < micro_batches) forward(mb + warm_up);
      backward(mb);
    }
  }
  return schedule;
}

}  // namespace troika

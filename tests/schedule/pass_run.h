// A second opinion on schedules of passes in a chain of stages: do all passes run once, in order, how long
// does it take, how much is held. On purpose written with nothing of the product but the types; quicker than
// support/naive_simulation.h, for tests that try thousands of orders.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "troika/schedule/catalogue.h"

namespace troika {

struct PassRun {
  std::string wrong;  // "" if all is well; else the rest has no meaning
  double cost = 0, makespan = 0;
  int peak_held = 0;  // in chunks: forwards of any of a lane's stages
};

inline std::string describe(const ScheduleRequest& request) {
  const PassTimes& times = request.times;
  return fmt::format("{} lanes, {} micro-batches, limit {}, times {} {} {} {}", request.lanes,
                     request.micro_batches, request.memory_limit.value_or(-1), times.forward_s, times.input_s,
                     times.weight_s, times.message_s);
}

inline int lane_peak_held(const Lane& lane) {
  int held = 0, peak = 0;
  for (const Action& action : lane) {
    if (action.op == Op::forward) ++held;
    if (action.op == Op::backward || action.op == Op::backward_weight) --held;
    peak = std::max(peak, held);
  }
  return peak;
}

inline PassRun run_passes(const Schedule& schedule, const PassTimes& times) {
  const size_t lanes = schedule.lanes.size(), stages = schedule.lane_of_stage.size();
  const auto count = static_cast<size_t>(schedule.num_micro_batches);
  // When pass k of F, I and W of a stage has ended.
  std::vector<std::vector<double>> ends[3];
  for (auto& of_op : ends) of_op.resize(stages);
  std::vector<size_t> at(lanes);
  std::vector<double> free(lanes), begin(lanes);
  PassRun run;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t here = 0; here < lanes; ++here) {
      const Lane& lane = schedule.lanes[here];
      for (; at[here] < lane.size(); ++at[here]) {
        const Action& action = lane[at[here]];
        if (action.op == Op::optimizer_step) continue;
        const bool whole = action.op == Op::backward;
        const int kind = action.op == Op::forward ? 0 : whole || action.op == Op::backward_input ? 1 : 2;
        if (kind == 2 && action.op != Op::backward_weight) return {"another kind of action"};
        const auto stage = static_cast<size_t>(action.stage);
        if (schedule.lane_of_stage[stage] != static_cast<int>(here)) return {"another lane's stage"};
        std::vector<double>& mine = ends[kind][stage];
        const auto micro_batch = static_cast<size_t>(action.micro_batch);
        if (micro_batch != mine.size() || mine.size() == count) return {"out of order, or twice"};
        if (whole && micro_batch != ends[2][stage].size()) return {"out of order, or twice"};
        double from = free[here];
        if (kind > 0 && ends[kind - 1][stage].size() <= micro_batch) break;
        const size_t neighbour = kind == 0 ? stage - 1 : stage + 1;  // wraps around where there is none
        if (kind < 2 && neighbour < stages) {
          if (ends[kind][neighbour].size() <= micro_batch) break;
          const bool stays = schedule.lane_of_stage[neighbour] == static_cast<int>(here);
          from = std::max(from, ends[kind][neighbour][micro_batch] + (stays ? 0 : times.message_s));
        }
        if (at[here] == 0) begin[here] = from;
        free[here] = from + (kind == 0 ? times.forward_s : kind == 1 ? times.input_s : times.weight_s);
        if (whole) ends[2][stage].push_back(free[here] += times.weight_s);
        mine.push_back(free[here]);
        moved = true;
      }
    }
  }
  const auto& last = ends[schedule.kind == Kind::forward ? 0 : 2];
  for (size_t here = 0; here < lanes; ++here) {
    if (at[here] < schedule.lanes[here].size()) return {"lanes wait for each other"};
  }
  for (const std::vector<double>& of_stage : last) {
    if (of_stage.size() < count) return {"passes are missing"};
  }
  for (size_t here = 0; here < lanes; ++here) {
    run.cost = std::max(run.cost, free[here] - begin[here]);
    run.makespan = std::max(run.makespan, free[here]);
    run.peak_held = std::max(run.peak_held, lane_peak_held(schedule.lanes[here]));
  }
  return run;
}

/// `warm_up(stage)` forwards, then F and I in turn; a W after an I when more than `lag(stage)` wait.
template <typename WarmUp, typename Lag>
Schedule hand_made(int lanes, int micro_batches, const WarmUp& warm_up, const Lag& lag) {
  Schedule schedule = empty_schedule(Kind::train, micro_batches, loop_layout(lanes, 1));
  for (int stage = 0; stage < lanes; ++stage) {
    Lane& lane = schedule.lanes[static_cast<size_t>(stage)];
    int forwards = 0, inputs = 0, weights = 0;
    while (forwards < std::min(warm_up(stage), micro_batches))
      lane.push_back({Op::forward, stage, forwards++});
    while (inputs < micro_batches) {
      if (forwards < micro_batches) lane.push_back({Op::forward, stage, forwards++});
      lane.push_back({Op::backward_input, stage, inputs++});
      if (inputs - weights > lag(stage)) lane.push_back({Op::backward_weight, stage, weights++});
    }
    while (weights < micro_batches) lane.push_back({Op::backward_weight, stage, weights++});
  }
  return schedule;
}

}  // namespace troika

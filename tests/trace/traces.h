// Traces for the drawings' tests: a timed one from lanes of actions, by a plain rule of its own.
#pragma once

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "troika/trace/trace.h"

namespace troika {

struct PassSeconds {
  double forward = 1, backward = 2, input = 1, weight = 1;
};

/// One line of actions per rank, as in a schedule's text form. Every action starts as soon as its rank is
/// free and the stage before it (after it, for a gradient) has done that micro-batch.
inline Trace trace_of(const std::vector<std::string>& lines, const PassSeconds& seconds = {}) {
  std::vector<std::vector<Action>> lanes;
  for (const std::string& line : lines) {
    lanes.emplace_back();
    std::istringstream words(line);
    for (std::string word; words >> word;) lanes.back().push_back(parse_action(word));
  }
  int last_stage = 0;
  for (const auto& lane : lanes) {
    for (const Action& action : lane) last_stage = std::max(last_stage, action.stage);
  }
  Trace trace{static_cast<int>(lanes.size()), {}};
  std::vector<size_t> done(lanes.size());
  std::vector<double> free(lanes.size());
  std::map<std::pair<int, int>, double> forward_end, gradient_end;  // of (stage, micro-batch)
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < lanes.size(); ++rank) {
      while (done[rank] < lanes[rank].size()) {
        const Action& action = lanes[rank][done[rank]];
        const std::pair before{action.stage - 1, action.micro_batch},
            after{action.stage + 1, action.micro_batch};
        const bool gradient = action.op == Op::backward || action.op == Op::backward_input;
        double start = free[rank], length = seconds.weight;
        if (action.op == Op::forward) {
          if (action.stage > 0 && forward_end.count(before) == 0) break;
          if (action.stage > 0) start = std::max(start, forward_end[before]);
          length = seconds.forward;
        }
        if (gradient) {
          if (action.stage < last_stage && gradient_end.count(after) == 0) break;
          if (action.stage < last_stage) start = std::max(start, gradient_end[after]);
          length = action.op == Op::backward ? seconds.backward : seconds.input;
        }
        free[rank] = start + length;
        if (action.op == Op::forward) forward_end[{action.stage, action.micro_batch}] = free[rank];
        if (gradient) gradient_end[{action.stage, action.micro_batch}] = free[rank];
        trace.spans.push_back({static_cast<int>(rank), action, start, free[rank]});
        ++done[rank];
        moved = true;
      }
    }
  }
  return trace;
}

/// 1F1B: every rank starts with as many forwards as there are ranks after it, then takes turns.
inline Trace one_f_one_b(int ranks, int micro_batches, const PassSeconds& seconds = {}) {
  std::vector<std::string> lines;
  for (int rank = 0; rank < ranks; ++rank) {
    int forwards = 0;
    std::string line;
    const auto add = [&](char letter, int micro_batch) {
      line += std::to_string(rank) + letter + std::to_string(micro_batch) + " ";
    };
    while (forwards < std::min(micro_batches, ranks - 1 - rank)) add('F', forwards++);
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      if (forwards < micro_batches) add('F', forwards++);
      add('B', micro_batch);
    }
    lines.push_back(line);
  }
  return trace_of(lines, seconds);
}

}  // namespace troika

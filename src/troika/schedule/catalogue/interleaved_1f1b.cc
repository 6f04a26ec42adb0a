#include <algorithm>

#include "troika/base/split.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"

// 1F1B on v stages per lane, which come to their turn in groups of micro-batches. 2 lanes, 4 micro-batches,
// small letters are the second stage of a lane, a backward (B0---) takes as long as two forwards:
//
//     F0 F1 f0 f1 F2 .  b0--- F3 b1--- f2 B0--- f3 B1--- .  b2--- .  b3--- B2--- B3---
//     .  F0 F1 f0 b0--- f1 b1--- F2 B0--- F3 B1--- f2 b2--- f3 b3--- B2--- B3---

namespace troika {
namespace {

// Groups of micro-batches go through the chunks in turn. A group of at least as many as there are lanes
// leaves no gap when the next chunk's turn comes, so what is too few for a group of its own makes the others
// larger.
std::vector<Range> groups_of(const ScheduleRequest& request) {
  const int count = std::max(1, request.micro_batches / request.lanes);
  std::vector<Range> groups;
  for (int at = 0; at < count; ++at) groups.push_back(share({0, request.micro_batches}, count, at));
  return groups;
}

Lane in_groups(Op op, int lane, const ScheduleRequest& request, const std::vector<Range>& groups) {
  Lane passes;
  for (const Range& group : groups) {
    for (int turn = 0; turn < request.chunks; ++turn) {
      const int chunk = op == Op::forward ? turn : request.chunks - 1 - turn;
      for (int64_t micro_batch = group.begin; micro_batch < group.end; ++micro_batch) {
        passes.push_back({op, chunk * request.lanes + lane, static_cast<int>(micro_batch)});
      }
    }
  }
  return passes;
}

Schedule make(const ScheduleRequest& request) {
  const int lanes = request.lanes, chunks = request.chunks;
  const std::vector<Range> groups = groups_of(request);
  const int largest = static_cast<int>(groups.front().size());
  Schedule schedule = empty_schedule(Kind::train, request.micro_batches, loop_layout(lanes, chunks));
  for (int lane = 0; lane < lanes; ++lane) {
    const int later = lanes - 1 - lane;
    const int warm_up = chunks == 1 ? later : 2 * later + (chunks - 1) * largest;
    schedule.lanes[static_cast<size_t>(lane)] =
        forwards_and_backwards(in_groups(Op::forward, lane, request, groups),
                               in_groups(Op::backward, lane, request, groups), warm_up);
  }
  return schedule;
}

}  // namespace

CatalogueEntry interleaved_1f1b_entry() {
  return {.name = "interleaved-1f1b",
          .summary = "1f1b with v stages per lane, so that filling and draining take a v-th of the time",
          .bubble = "(p-1)(F+I+W), times of a chunk: a v-th of 1f1b's",
          .memory = "p + (p-1)/v where p divides m",
          .use = "many layers per lane and quick messages: v times as many messages as 1f1b",
          .paper = "Narayanan et al., 2021, arXiv:2104.04473",
          .default_chunks = 2,
          .fixed_chunks = false,
          .make = make};
}

}  // namespace troika

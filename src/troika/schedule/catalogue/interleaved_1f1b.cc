#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"
#include "troika/schedule/passes.h"

// 1F1B on v stages per lane, which come to their turn in groups of micro-batches. 2 lanes, 4 micro-batches,
// small letters are the second stage of a lane, a backward (B0---) takes as long as two forwards:
//
//     F0 F1 f0 f1 F2 .  b0--- F3 b1--- f2 B0--- f3 B1--- .  b2--- .  b3--- B2--- B3---
//     .  F0 F1 f0 b0--- f1 b1--- F2 B0--- F3 B1--- f2 b2--- f3 b3--- B2--- B3---

namespace troika {
namespace {

// All passes of one kind in a lane: groups of as many micro-batches as lanes go through the chunks in turn.
Lane in_groups(Op op, int lane, const ScheduleRequest& request, int micro_batches) {
  Lane passes;
  for (int group = 0; group < micro_batches; group += request.lanes) {
    for (int turn = 0; turn < request.chunks; ++turn) {
      const int chunk = op == Op::forward ? turn : request.chunks - 1 - turn;
      for (int each = 0; each < request.lanes; ++each) {
        passes.push_back({op, chunk * request.lanes + lane, group + each});
      }
    }
  }
  return passes;
}

// A last group that is shorter is made whole and its surplus removed: with fewer micro-batches in a group
// than lanes the order would wait for itself.
Schedule make_interleaved_1f1b(const ScheduleRequest& request) {
  const int lanes = request.lanes, chunks = request.chunks;
  const int whole_groups = (request.micro_batches + lanes - 1) / lanes * lanes;
  Schedule schedule = empty_schedule(Kind::train, whole_groups, loop_layout(lanes, chunks));
  for (int lane = 0; lane < lanes; ++lane) {
    const int later = lanes - 1 - lane;
    const int warm_up = chunks == 1 ? later : 2 * later + (chunks - 1) * lanes;
    schedule.lanes[static_cast<size_t>(lane)] =
        forwards_and_backwards(in_groups(Op::forward, lane, request, whole_groups),
                               in_groups(Op::backward, lane, request, whole_groups), warm_up);
  }
  return with_micro_batches(schedule, request.micro_batches);
}

}  // namespace

CatalogueEntry interleaved_1f1b_entry() {
  return {.name = "interleaved-1f1b",
          .summary = "1f1b with v stages per lane, so that filling and draining take a v-th of the time",
          .bubble = "(p-1)(F+I+W), times of a chunk: a v-th of 1f1b's",
          .memory = "at most p + (p-1)/v",
          .use = "many layers per lane and quick messages: v times as many messages as 1f1b",
          .paper = "Narayanan et al., 2021, arXiv:2104.04473",
          .default_chunks = 2,
          .fixed_chunks = false,
          .make = make_interleaved_1f1b};
}

}  // namespace troika

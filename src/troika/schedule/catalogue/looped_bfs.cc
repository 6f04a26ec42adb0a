#include "troika/schedule/catalogue.h"
#include "troika/schedule/catalogue/orders.h"

// All micro-batches of a stage before the lane's next stage ("breadth first"), and back again. 2 lanes,
// 3 micro-batches, small letters are the second stage of a lane, a backward (B0---) takes as long as two
// forwards:
//
//     F0 F1 F2 f0 f1 f2 .  .  .  b0--- b1--- b2--- B0--- B1--- B2---
//     .  F0 F1 F2 f0 f1 f2 b0--- b1--- b2--- B0--- B1--- B2---

namespace troika {
namespace {

Lane chunk_after_chunk(Op op, int lane, const ScheduleRequest& request) {
  Lane passes;
  for (int turn = 0; turn < request.chunks; ++turn) {
    const int chunk = op == Op::forward ? turn : request.chunks - 1 - turn;
    const Lane one = ascending(op, chunk * request.lanes + lane, request.micro_batches);
    passes.insert(passes.end(), one.begin(), one.end());
  }
  return passes;
}

Schedule make_looped_bfs(const ScheduleRequest& request) {
  Schedule schedule =
      empty_schedule(Kind::train, request.micro_batches, loop_layout(request.lanes, request.chunks));
  for (int lane = 0; lane < request.lanes; ++lane) {
    Lane& passes = schedule.lanes[static_cast<size_t>(lane)];
    passes = chunk_after_chunk(Op::forward, lane, request);
    const Lane backwards = chunk_after_chunk(Op::backward, lane, request);
    passes.insert(passes.end(), backwards.begin(), backwards.end());
  }
  return schedule;
}

}  // namespace

CatalogueEntry looped_bfs_entry() {
  return {.name = "looped-bfs",
          .summary = "gpipe with v stages per lane: all micro-batches of a chunk, then of the next",
          .bubble = "(p-1)(F+I+W), times of a chunk: a v-th of gpipe's",
          .memory = "m",
          .use =
              "few micro-batches, about as many as lanes; a chunk's gradients are complete early, to be "
              "reduced meanwhile",
          .paper = "Lamy-Poirier, 2023, arXiv:2211.05953",
          .default_chunks = 2,
          .fixed_chunks = false,
          .make = make_looped_bfs};
}

}  // namespace troika

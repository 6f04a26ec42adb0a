#include <algorithm>
#include <array>
#include <utility>

#include "troika/schedule/catalogue.h"

// Lane r has stages r and 2p - 1 - r, so that the last stage is beside the first one. In the middle each
// forward is paired with a backward of the lane's other stage, which engines may run at the same time; here
// they follow each other. 2 lanes, 4 micro-batches, small letters are the second stage of a lane, F = I = W:
//
//     F0 F1 F2 f0 i0 w0 f1 F3 b1--- f2 B0--- b2--- f3 .  B1--- b3--- I2 W2 I3 W3
//     .  F0 f0 F1 f1 F2 b0--- f2 B0--- F3 b1--- f3 B1--- b2--- B2--- i3 I3 w3 W3

namespace troika {
namespace {

// One lane, written pass by pass; each stage counts its own micro-batches, and those from `kept` on are left
// out: what remains is in an order that can run, too.
class Writer {
 public:
  Writer(int lane, int lanes, int kept) : stages_{lane, 2 * lanes - 1 - lane}, kept_(kept) {}

  void forward(size_t chunk) { add({Op::forward, stages_[chunk], forwards_[chunk]++}); }

  void backward(size_t chunk) { add({Op::backward, stages_[chunk], backwards_[chunk]++}); }

  void input(size_t chunk) {
    waiting_.push_back({Op::backward_weight, stages_[chunk], backwards_[chunk]});
    add({Op::backward_input, stages_[chunk], backwards_[chunk]++});
  }

  void weight() {
    if (weights_ < waiting_.size()) add(waiting_[weights_++]);
  }

  /// After a round of nothing but left out micro-batches come only more of them: many lanes and few
  /// micro-batches take no longer than what is written.
  template <typename Round>
  void rounds(int count, const Round& round) {
    for (int i = 0; i < count; ++i) {
      const size_t before = lane_.size();
      round();
      if (lane_.size() == before) return;
    }
  }

  Lane finish() {
    while (weights_ < waiting_.size()) weight();
    return std::move(lane_);
  }

 private:
  void add(const Action& action) {
    if (action.micro_batch < kept_) lane_.push_back(action);
  }

  std::array<int, 2> stages_, forwards_ = {0, 0}, backwards_ = {0, 0};
  int kept_;
  size_t weights_ = 0;
  Lane lane_, waiting_;
};

// Chunk 0 is the way down the V, 1 the way up.
Lane make_lane(int lane, int lanes, int kept) {
  const int micro_batches = std::max(kept, 2 * lanes);  // the steps below need that many
  const int before = lane + 1, later = lanes - before;
  Writer write(lane, lanes, kept);
  // Fill: forwards down the V, then also up.
  write.rounds(2 * later, [&] { write.forward(0); });
  write.rounds(before, [&] {
    write.forward(0);
    write.forward(1);
  });
  // The first backwards: the lanes before wait for their input parts, W fills the wait for the next forward.
  write.rounds(later, [&] {
    write.input(1);
    write.weight();
    write.forward(1);
  });
  // Pairs of a forward and a backward of the other stage.
  write.rounds(micro_batches - 2 * lanes + before, [&] {
    write.forward(0);
    write.backward(1);
    write.forward(1);
    write.backward(0);
  });
  // Drain: no forwards left for chunk 0, then none at all. Of the last ones W waits, so that the input parts
  // run through to the first lane, and fills the gaps between them.
  write.rounds(later, [&] {
    write.backward(1);
    write.forward(1);
    write.backward(0);
  });
  write.rounds(before / 2, [&] {
    write.backward(1);
    write.backward(0);
  });
  if (before % 2 == 1) {
    write.backward(1);
    write.input(0);
  }
  write.rounds(before / 2, [&] {
    write.input(1);
    write.input(0);
  });
  write.rounds(later, [&] {
    write.weight();
    write.input(0);
  });
  return write.finish();
}

Schedule make_dualpipe_v(const ScheduleRequest& request) {
  const int lanes = request.lanes;
  Schedule schedule = empty_schedule(Kind::train, request.micro_batches, vee_layout(lanes));
  for (int lane = 0; lane < lanes; ++lane) {
    schedule.lanes[static_cast<size_t>(lane)] = make_lane(lane, lanes, request.micro_batches);
  }
  return schedule;
}

}  // namespace

CatalogueEntry dualpipe_v_entry() {
  return {.name = "dualpipe-v",
          .summary = "a V of two stages per lane, each forward beside a backward of the lane's other stage",
          .bubble = "(p-1)(F+I-W), times of a chunk, where F, I and W are about the same",
          .memory = "min(p + 1/2, m)",
          .use = "where a forward's messages hide behind a backward's passes; from 2p micro-batches on",
          .paper = "DeepSeek-AI, 2024, arXiv:2412.19437; cut in half to a V by Qi et al., 2025",
          .default_chunks = 2,
          .splits_backward = true,
          .make = make_dualpipe_v};
}

}  // namespace troika

#include "troika/train/step_pieces.h"

#include <ATen/Parallel.h>

namespace troika::internal {

const std::vector<Batch>& StepPieces::of(
    int64_t step, const std::function<void(int64_t micro_batch, Clock::time_point)>& loaded) {
  if (step == step_) return pieces_;
  const StepPlace place = place_of_step(work_, step);
  const int64_t micro_batches = work_.recipe.parallel.micro_batches;
  step_ = -1;
  rows_.resize(static_cast<size_t>(micro_batches));
  pieces_.clear();
  for (int64_t j = 0; j < micro_batches; ++j) {
    const auto begin = Clock::now();
    RowBuffer& rows = rows_[static_cast<size_t>(j)];
    const Range piece = piece_of(place.positions, micro_batches, j, ranks_, rank_, work_.piece_unit());
    source_.gather(reader_, place.epoch, piece, rows);
    pieces_.push_back(make_batch(work_, rows, piece.begin - place.positions.begin));
    if (loaded) loaded(j, begin);
  }
  step_ = step;
  return pieces_;
}

std::vector<Batch> StepPieces::places_of(int64_t step) const {
  const Range positions = place_of_step(work_, step).positions;
  std::vector<Batch> places;
  for (int64_t j = 0; j < work_.recipe.parallel.micro_batches; ++j) {
    const Range piece =
        piece_of(positions, work_.recipe.parallel.micro_batches, j, ranks_, rank_, work_.piece_unit());
    Batch& batch = places.emplace_back();
    batch.samples = piece.size();
    batch.first_sample = piece.begin - positions.begin;
  }
  return places;
}

ThreadCount::ThreadCount(int64_t threads) : before_(at::get_num_threads()) {
  at::set_num_threads(static_cast<int>(threads));
}

ThreadCount::~ThreadCount() { at::set_num_threads(before_); }

}  // namespace troika::internal

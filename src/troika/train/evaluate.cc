#include "troika/train/evaluate.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace troika {
namespace {

constexpr int64_t kChunk = 4096;

MetricSums sums_of(const Workload& work, Replica& replica, const RowBuffer& rows) {
  const Batch batch = make_batch(work, rows);
  const Tensors outputs = replica.evaluate(batch.inputs);
  const double loss = work.loss(outputs, batch).sum.item<double>();
  const at::Tensor plain = outputs.at(0).to(at::kDouble).contiguous();
  std::vector<double> targets(static_cast<size_t>(rows.rows * work.features.target_width()));
  raw_targets(work.features, work.dataset, rows, targets.data());
  MetricSums sums(work.features);
  sums.add(work.features, rows.rows, plain.size(1), plain.const_data_ptr<double>(), targets.data(), loss);
  return sums;
}

}  // namespace

Evaluator::Evaluator(const Workload& work, const RowSet& rows, int readers) : work_(work) {
  SourceOptions options;
  options.readers = readers;
  options.shuffle = false;
  source_ = BatchSource::open(work.dataset, rows, 0, options);
}

MetricSums Evaluator::evaluate(Communicator& communicator, Replica& replica, int64_t round) const {
  const int64_t ranks = communicator.size();
  const int64_t chunks = (source_->size() + kChunk - 1) / kChunk;
  MetricSums total(work_.features);
  const size_t width = total.numbers().size();
  std::vector<double> slots(width * static_cast<size_t>(ranks));
  RowBuffer rows;
  for (int64_t first = 0; first < chunks; first += ranks) {
    const int64_t chunk = first + communicator.rank();
    std::ranges::fill(slots, 0.0);
    if (chunk < chunks) {
      source_->gather(communicator.rank(), round,
                      {chunk * kChunk, std::min((chunk + 1) * kChunk, source_->size())}, rows);
      std::ranges::copy(sums_of(work_, replica, rows).numbers(),
                        slots.begin() + static_cast<ptrdiff_t>(width) * communicator.rank());
    }
    // Adding zeros changes no bit, so every rank has every chunk's own sums, whoever computed them.
    communicator.all_reduce_sum({slots.data(), static_cast<int64_t>(slots.size()), ElementType::float64});
    MetricSums piece(work_.features);
    for (int64_t rank = 0; rank < std::min(ranks, chunks - first); ++rank) {
      std::copy_n(slots.begin() + static_cast<ptrdiff_t>(width) * rank, width, piece.numbers().begin());
      total += piece;
    }
  }
  return total;
}

}  // namespace troika

#include "troika/train/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "troika/base/text.h"
#include "troika/train/auc.h"

namespace troika {
namespace {

constexpr int64_t kMostSamples = 4096;
constexpr int64_t kChunkBytes = int64_t{128} << 20;
// Numbers that layers hold at once for each row and unit of width: the gates of an LSTM and its outputs, or a
// transformer's query, key, value and the inner layer.
constexpr int64_t kPerWidth = 8;

/// What a chunk gives: sums in float64, and records of scores (auc.h), both of a fixed size.
struct Chunk {
  MetricSums sums;
  std::vector<float> records;  // of the samples there are, then zeros
};

void compute(const Workload& work, Replica& replica, const RowBuffer& rows, bool with_scores, Chunk& chunk) {
  const Batch batch = make_batch(work, rows);
  const Tensors outputs = replica.evaluate(batch.inputs);
  const LossValue loss = work.loss(outputs, batch);
  const at::Tensor plain = outputs.at(0).to(at::kDouble).contiguous();
  const int64_t width = plain.size(-1);
  const double* const numbers = plain.const_data_ptr<double>();
  std::vector<double> targets(static_cast<size_t>(batch.samples * work.features.target_width()));
  raw_targets(work.features, work.dataset, rows, targets.data());
  chunk.sums.add(work.features, work.features.counted(batch.samples), width, numbers, targets.data(),
                 loss.sum.item<double>(), loss.weight);
  if (with_scores)
    write_scores(work.features, batch.samples, width, numbers, targets.data(), chunk.records.data());
}

}  // namespace

int64_t chunk_samples(const Workload& work) {
  return chunk_samples(work.recipe, work.features, work.dataset, work.loss_kind);
}

int64_t chunk_samples(const Recipe& recipe, const FeaturePlan& plan, const Dataset& dataset, LossKind loss) {
  const int64_t rows = std::max<int64_t>(1, plan.windows.window);
  const int64_t number = dtype_of(recipe.train) == at::kDouble ? 8 : 4;
  const int64_t inputs = static_cast<int64_t>(plan.floats.size()) * (4 + number) +
                         8 * static_cast<int64_t>(plan.categories.size()) + dataset.row_bytes();
  const int64_t held = kPerWidth * recipe.model.width * number;
  const int64_t outputs = 4 * 8 * plan.counted(output_width(loss, plan));
  const int64_t fit = kChunkBytes / (rows * (inputs + held) + outputs);
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(fit, 1, kMostSamples))));
}

Evaluator::Evaluator(const Workload& work, const RowSet& rows, int readers, const EvaluateOptions& options)
    : work_(work), chunk_(options.chunk > 0 ? options.chunk : chunk_samples(work)) {
  SourceOptions source;
  source.readers = readers;
  source.shuffle = false;
  source.span = work.features.windows.span();
  source_ = BatchSource::open(work.dataset, rows, 0, source);
  const int64_t columns = score_columns(work.features);
  too_many_scores_ = columns > 0 && source_->size() > options.most_scores / (columns + 1);
  keeps_scores_ = columns > 0 && !too_many_scores_;
}

MetricSums Evaluator::evaluate(Communicator& communicator, Replica& replica, int64_t round,
                               const OnProgress& on_progress, int reader) const {
  const int64_t ranks = communicator.size(), samples = source_->size();
  const int64_t columns = keeps_scores_ ? score_columns(work_.features) : 0;
  const size_t record = keeps_scores_ ? static_cast<size_t>(columns + 1) : 0;
  MetricSums total(work_.features);
  const size_t width = total.numbers().size(), records = record * static_cast<size_t>(chunk_);
  std::vector<double> all_sums(width * static_cast<size_t>(ranks));
  std::vector<float> all_records(records * static_cast<size_t>(ranks));
  ScoreRanking ranking(columns, communicator.rank(), ranks);
  if (keeps_scores_) ranking.reserve(samples);
  const auto range_of = [&](int64_t chunk) {
    return Range{std::min(chunk * chunk_, samples), std::min((chunk + 1) * chunk_, samples)};
  };
  RowBuffer rows;
  for (int64_t first = 0; first * chunk_ < samples; first += ranks) {
    communicator.say("evaluating", round);
    const Range mine = range_of(first + communicator.rank());
    Chunk chunk{MetricSums(work_.features), std::vector<float>(records)};
    if (mine.size() > 0) {
      source_->gather(reader < 0 ? communicator.rank() : reader, round, mine, rows);
      compute(work_, replica, rows, keeps_scores_, chunk);
    }
    std::vector<double>& numbers = chunk.sums.numbers();
    communicator.all_gather({numbers.data(), static_cast<int64_t>(width), ElementType::float64},
                            {all_sums.data(), static_cast<int64_t>(all_sums.size()), ElementType::float64});
    if (keeps_scores_) {
      communicator.all_gather(
          {chunk.records.data(), static_cast<int64_t>(records), ElementType::float32},
          {all_records.data(), static_cast<int64_t>(all_records.size()), ElementType::float32});
    }
    int64_t done = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Range range = range_of(first + rank);
      if (range.size() == 0) break;
      const auto slot = static_cast<size_t>(rank);
      std::copy_n(all_sums.begin() + static_cast<ptrdiff_t>(width * slot), width, numbers.begin());
      total += chunk.sums;
      ranking.add({all_records.data() + records * slot, record * static_cast<size_t>(range.size())});
      done = range.end;
    }
    if (on_progress) on_progress(done, samples);
  }
  if (too_many_scores_) {
    total.leave_out_auc(fmt::format("no auc: it would need {} of memory for the scores of {} samples",
                                    human_bytes(4.0 * static_cast<double>(samples) *
                                                static_cast<double>(score_columns(work_.features) + 1)),
                                    with_commas(samples)));
  }
  if (keeps_scores_) {
    communicator.say("ranking scores", round);
    std::vector<double> areas = ranking.areas();
    communicator.all_reduce_sum({areas.data(), static_cast<int64_t>(areas.size()), ElementType::float64});
    total.set_auc(ScoreRanking::mean(areas));
  }
  return total;
}

}  // namespace troika

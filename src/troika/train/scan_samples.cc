#include "troika/train/scan_samples.h"

#include <algorithm>

namespace troika {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;
constexpr int64_t kChunkSamples = 8192;

}  // namespace

void scan_samples(const Dataset& dataset, const RowSet& starts, int64_t span,
                  const std::function<void(const RowBuffer&)>& visit) {
  if (span == 1) return scan_rows(dataset, starts, visit);
  if (starts.count() == 0) return;
  SourceOptions options;
  options.shuffle = false;
  options.span = span;
  const auto source = BatchSource::open(dataset, starts, 0, options);
  const int64_t chunk =
      std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(1, span * dataset.row_bytes()), 1, kChunkSamples);
  RowBuffer rows;
  for (int64_t at = 0; at < source->size(); at += chunk) {
    source->gather(0, 0, {at, std::min(at + chunk, source->size())}, rows);
    visit(rows);
  }
}

}  // namespace troika

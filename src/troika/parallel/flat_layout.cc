#include "troika/parallel/flat_layout.h"

namespace troika {

constexpr int64_t kLineBytes = 64;

Range FlatLayout::padded(size_t index) const {
  const bool last = index + 1 == entries.size();
  return {entries[index].offset, last ? total : entries[index + 1].offset};
}

FlatLayout make_flat_layout(std::vector<FlatLayout::Entry> entries, int64_t element_bytes) {
  FlatLayout layout;
  layout.line = kLineBytes / element_bytes;
  for (auto& entry : entries) {
    entry.size = 1;
    for (const int64_t extent : entry.shape) entry.size *= extent;
    entry.offset = layout.total;
    layout.total += (entry.size + layout.line - 1) / layout.line * layout.line;
  }
  layout.entries = std::move(entries);
  return layout;
}

Range slice_of_rank(const FlatLayout& layout, int ranks, int rank) {
  const Range lines = share({0, layout.total / layout.line}, ranks, rank);
  return {lines.begin * layout.line, lines.end * layout.line};
}

}  // namespace troika

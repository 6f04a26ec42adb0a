#include "troika/data/source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "troika/base/error.h"
#include "troika/base/memory.h"
#include "troika/base/text.h"
#include "troika/data/order.h"
#include "troika/data/source_window.h"

namespace troika {
namespace {

// Rows of a group lie scattered over it; asking for the next ones early hides most of that.
constexpr size_t kPrefetchItems = 8;
constexpr int64_t kPrefetchBytes = 256;
constexpr int64_t kCacheLine = 64;

void prefetch(const std::byte* row, int64_t bytes) {
  for (int64_t at = 0; at < std::min(bytes, kPrefetchBytes); at += kCacheLine) __builtin_prefetch(row + at);
}

// Copies one array's part of `items`, `span` rows each, to `out`, row after row.
void copy_items(const LoadedGroup& group, std::span<const Slot> items, const std::byte* BlockRows::*array,
                int64_t row_bytes, int64_t span, std::byte* out) {
  if (row_bytes == 0) return;
  const int64_t item_bytes = row_bytes * span;
  const auto row_of = [&](Slot slot) {
    return group.blocks[static_cast<size_t>(slot.block())].*array + slot.row() * row_bytes;
  };
  for (size_t i = 0; i < items.size(); ++i) {
    if (i + kPrefetchItems < items.size()) prefetch(row_of(items[i + kPrefetchItems]), item_bytes);
    std::memcpy(out, row_of(items[i]), static_cast<size_t>(item_bytes));
    out += item_bytes;
  }
}

uint64_t default_budget() { return std::min(memory_limit_bytes() / 4, memory_available_bytes()); }

uint64_t file_bytes(const Dataset& dataset) {
  uint64_t total = 0;
  for (const Shard& shard : dataset.shards)
    total += static_cast<uint64_t>(shard.floats_bytes + shard.ints_bytes);
  return total;
}

// Mapped if everything fits, else as many of two groups as do.
WindowPlan make_plan(const Dataset& dataset, const SampleOrder& order, uint64_t overhead, uint64_t budget) {
  const uint64_t mapped = file_bytes(dataset) + 2 * group_bytes(order, dataset, ShardReader::How::mapped);
  if (overhead + mapped <= budget) return {ShardReader::How::mapped, 2, mapped};
  const uint64_t group = group_bytes(order, dataset, ShardReader::How::random_reads);
  for (const int groups : {2, 1}) {
    const uint64_t bytes = static_cast<uint64_t>(groups) * group;
    if (overhead + bytes <= budget) return {ShardReader::How::random_reads, groups, bytes};
  }
  fail(
      "reading {} needs at least {} of memory (one group of {} rows of {} bytes, and {} for the sample "
      "order), the budget "
      "is {}; free some memory, raise the limit, or give a larger budget",
      dataset.folder.string(), human_bytes(static_cast<double>(overhead + group)),
      with_commas(order.group_rows()), dataset.row_bytes(), human_bytes(static_cast<double>(overhead)),
      human_bytes(static_cast<double>(budget)));
}

class GroupedSource final : public BatchSource {
 public:
  GroupedSource(const Dataset& dataset, const RowSet& rows, uint64_t seed, const SourceOptions& options)
      : float_row_bytes_(4 * static_cast<int64_t>(dataset.float_columns)),
        int_row_bytes_(8 * static_cast<int64_t>(dataset.int_columns)),
        span_(options.span),
        readers_(options.readers),
        order_(dataset, rows, seed, options.shuffle, options.span),
        orders_(order_) {
    TROIKA_ASSERT(readers_ >= 1, fmt::format("{} readers", readers_));
    const uint64_t budget = options.memory_budget_bytes > 0 ? options.memory_budget_bytes : default_budget();
    // What the shards' reader holds: checksums and names, and one checksum block if it reads.
    ShardReader reader(dataset, ShardReader::How::random_reads);
    const auto overhead = static_cast<uint64_t>(order_.bytes(EpochOrders::kKept) + reader.bytes());
    plan_ = make_plan(dataset, order_, overhead, budget);
    planned_bytes_ = overhead + plan_.bytes;
    if (plan_.how == ShardReader::How::mapped) reader = ShardReader(dataset, plan_.how);
    window_ = std::make_unique<GroupWindow>(order_, orders_, std::move(reader), plan_, readers_);
  }

  int64_t size() const override { return order_.size(); }

  void gather(int reader, int64_t epoch, Range positions, RowBuffer& out) override {
    TROIKA_ASSERT(reader >= 0 && reader < readers_, fmt::format("reader {} of {}", reader, readers_));
    check(epoch, positions);
    out.rows = positions.size() * span_;
    out.floats.resize(static_cast<size_t>(out.rows * float_row_bytes_) / sizeof(float));
    out.ints.resize(static_cast<size_t>(out.rows * int_row_bytes_) / sizeof(int64_t));
    window_->move_to(reader, epoch, positions.begin);
    if (positions.size() == 0) return;
    const std::shared_ptr<const EpochOrder> order = orders_.get(epoch);
    auto* floats = reinterpret_cast<std::byte*>(out.floats.data());
    auto* ints = reinterpret_cast<std::byte*>(out.ints.data());
    for (int64_t at = positions.begin; at < positions.end;) {
      const int64_t index = order->group_of(at);
      const int64_t begin = order->group_begin[static_cast<size_t>(index)];
      const int64_t end = std::min(positions.end, order->group_begin[static_cast<size_t>(index) + 1]);
      const LoadedGroup& group = window_->acquire(reader, {epoch, index});
      const std::span<const Slot> items =
          std::span(group.items).subspan(static_cast<size_t>(at - begin), static_cast<size_t>(end - at));
      copy_items(group, items, &BlockRows::floats, float_row_bytes_, span_, floats);
      copy_items(group, items, &BlockRows::ints, int_row_bytes_, span_, ints);
      window_->release(reader);
      floats += (end - at) * span_ * float_row_bytes_;
      ints += (end - at) * span_ * int_row_bytes_;
      at = end;
      window_->move_to(reader, epoch, at);
    }
  }

  std::vector<int64_t> row_numbers(int64_t epoch, Range positions) const override {
    check(epoch, positions);
    std::vector<int64_t> rows;
    if (positions.size() == 0) return rows;
    rows.reserve(static_cast<size_t>(positions.size()));
    const std::shared_ptr<const EpochOrder> order = orders_.get(epoch);
    std::vector<Slot> items;
    for (int64_t at = positions.begin; at < positions.end;) {
      const int64_t index = order->group_of(at);
      const std::vector<Block> blocks = order_.group_blocks(*order, index);
      order_.group_items(*order, epoch, index, items);
      const int64_t begin = order->group_begin[static_cast<size_t>(index)];
      const int64_t end = std::min(positions.end, order->group_begin[static_cast<size_t>(index) + 1]);
      for (; at < end; ++at) {
        const Slot slot = items[static_cast<size_t>(at - begin)];
        rows.push_back(blocks[static_cast<size_t>(slot.block())].first_row + slot.row());
      }
    }
    return rows;
  }

  std::string memory_plan() const override {
    const std::string bytes = human_bytes(static_cast<double>(planned_bytes_));
    if (plan_.how == ShardReader::How::mapped) return fmt::format("mapped, {}", bytes);
    return fmt::format("{} of up to {} rows, {}, {}", plan_.slots == 1 ? "1 group" : "2 groups",
                       with_commas(order_.group_rows()), plan_.slots == 1 ? "not read ahead" : "read ahead",
                       bytes);
  }

  uint64_t planned_bytes() const override { return planned_bytes_; }

 private:
  void check(int64_t epoch, Range positions) const {
    TROIKA_ASSERT(
        epoch >= 0 && positions.begin >= 0 && positions.begin <= positions.end && positions.end <= size(),
        fmt::format("epoch {}, positions [{}, {}) of {}", epoch, positions.begin, positions.end, size()));
  }

  int64_t float_row_bytes_, int_row_bytes_;
  int64_t span_;
  int readers_;
  SampleOrder order_;
  mutable EpochOrders orders_;
  WindowPlan plan_;
  uint64_t planned_bytes_ = 0;
  std::unique_ptr<GroupWindow> window_;
};

}  // namespace

std::unique_ptr<BatchSource> BatchSource::open(const Dataset& dataset, const RowSet& rows, uint64_t seed,
                                               const SourceOptions& options) {
  return std::make_unique<GroupedSource>(dataset, rows, seed, options);
}

}  // namespace troika

#include "troika/data/order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "troika/base/error.h"
#include "troika/base/random.h"

namespace troika {
namespace {

// Blocks and the rows of each group draw from different keys.
uint64_t blocks_key(uint64_t seed, int64_t epoch) {
  return mix_keys(mix_keys(seed, static_cast<uint64_t>(epoch)), 0);
}
uint64_t group_key(uint64_t seed, int64_t epoch, int64_t group) {
  return mix_keys(mix_keys(seed, static_cast<uint64_t>(epoch)), 1 + static_cast<uint64_t>(group));
}

// Fisher and Yates with counter-based draws. A group's order is a table anyway, and this is uniform over all
// permutations of any size and costs a few nanoseconds an item.
template <typename T>
void shuffle_by_key(std::vector<T>& items, uint64_t key) {
  const auto below = [](uint64_t bits, uint64_t bound) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * bound >> 64);
  };
  for (uint64_t left = items.size(); left > 1;) {
    const auto x = philox(key, 0, left);
    std::swap(items[left - 1], items[below(uint64_t{x[1]} << 32 | x[0], left)]);
    --left;
    if (left < 2) break;
    std::swap(items[left - 1], items[below(uint64_t{x[3]} << 32 | x[2], left)]);
    --left;
  }
}

}  // namespace

// An item that is longer than the dataset isn't in any row set: no need to count further.
BlockLayout::BlockLayout(const Dataset& dataset, int64_t item_rows)
    : span(std::clamp<int64_t>(item_rows, 1, dataset.rows + 1)) {
  const int64_t row_bytes = std::max<int64_t>(1, dataset.row_bytes());
  block_rows = std::clamp<int64_t>(kMaxBlockBytes / row_bytes, 1, kMaxBlockRows);
  if (span > 1) {
    const int64_t wanted = std::max(block_rows, kSpansPerBlock * span);
    const int64_t fitting = kMaxWindowBlockBytes / row_bytes - (span - 1);
    // With less than a span of its own, a block would be read mostly for what others read too.
    block_rows = std::min(std::max(std::min(wanted, fitting), span), kMaxWindowBlockRows);
  }
  const int64_t most_rows = std::min(kMaxGroupRows, kMaxGroupBytes / row_bytes);
  blocks_per_group = std::max<int64_t>(1, most_rows / (block_rows + span - 1));
  first_block.push_back(0);
  first_row.push_back(0);
  for (const Shard& shard : dataset.shards) {
    const int64_t crossing = std::min(shard.rows, span - 1);
    first_block.push_back(first_block.back() + blocks_of(shard.rows - crossing) + blocks_of(crossing));
    first_row.push_back(first_row.back() + shard.rows);
  }
  if (blocks() > std::numeric_limits<uint32_t>::max()) {
    fail("{} has {} blocks of rows, more than {} can't be put in order; split it into several datasets",
         dataset.folder.string(), blocks(), std::numeric_limits<uint32_t>::max());
  }
}

Block BlockLayout::block(int64_t index) const {
  const auto next = std::upper_bound(first_block.begin(), first_block.end(), index);
  const auto shard = static_cast<size_t>(next - first_block.begin()) - 1;
  const int64_t rows = first_row[shard + 1] - first_row[shard];
  const int64_t within = rows - std::min(rows, span - 1);  // rows whose items end in the shard
  const int64_t local = index - first_block[shard];
  const int64_t crossing = local - blocks_of(within);
  const int64_t row = crossing < 0 ? local * block_rows : within + crossing * block_rows;
  const int64_t end = crossing < 0 ? within : rows;
  return {static_cast<int>(shard), row, first_row[shard] + row, std::min(block_rows, end - row)};
}

int64_t EpochOrder::group_of(int64_t position) const {
  return std::upper_bound(group_begin.begin(), group_begin.end(), position) - group_begin.begin() - 1;
}

SampleOrder::SampleOrder(const Dataset& dataset, const RowSet& rows, uint64_t seed, bool shuffle,
                         int64_t span)
    : layout_(dataset, span), rows_(rows), seed_(seed), shuffle_(shuffle) {
  TROIKA_ASSERT(
      rows.universe() == layout_.first_row.back(),
      fmt::format("a row set over {} rows for a dataset of {}", rows.universe(), layout_.first_row.back()));
  TROIKA_ASSERT(span >= 1, fmt::format("items of {} rows", span));
  const int64_t last_rows = layout_.span - 1;
  TROIKA_ASSERT(rows.count({std::max<int64_t>(0, rows.universe() - last_rows), rows.universe()}) == 0,
                fmt::format("an item of {} rows begins within the last {} rows", span, last_rows));
  for (int64_t index = 0; index < layout_.blocks(); ++index) {
    const Block block = layout_.block(index);
    const int64_t count = rows_.count({block.first_row, block.first_row + block.rows});
    if (count == 0) continue;
    used_blocks_.push_back(static_cast<uint32_t>(index));
    used_counts_.push_back(static_cast<uint16_t>(count));
    size_ += count;
    used_rows_ += block.rows;
    crossing_blocks_ += layout_.crosses_shards(block) ? 1 : 0;
    most_items_ = std::max(most_items_, count);
  }
  used_blocks_.shrink_to_fit();
  used_counts_.shrink_to_fit();
}

int64_t SampleOrder::groups() const {
  const auto blocks = static_cast<int64_t>(used_blocks_.size());
  return (blocks + layout_.blocks_per_group - 1) / layout_.blocks_per_group;
}

int64_t SampleOrder::group_blocks() const {
  return std::min(static_cast<int64_t>(used_blocks_.size()), layout_.blocks_per_group);
}

int64_t SampleOrder::group_items() const { return std::min(group_blocks() * most_items_, size_); }

int64_t SampleOrder::group_rows() const {
  const int64_t after = layout_.span - 1;
  return std::min(group_blocks() * (layout_.block_rows + after),
                  used_rows_ + static_cast<int64_t>(used_blocks_.size()) * after);
}

int64_t SampleOrder::group_crossing_rows() const {
  const int64_t after = layout_.span - 1;
  return std::min(crossing_blocks_, group_blocks()) * (std::min(layout_.block_rows, after) + after);
}

EpochOrder SampleOrder::epoch(int64_t epoch) const {
  EpochOrder order;
  order.blocks.resize(used_blocks_.size());
  std::iota(order.blocks.begin(), order.blocks.end(), 0u);
  if (shuffle_) shuffle_by_key(order.blocks, blocks_key(seed_, epoch));
  order.group_begin.reserve(static_cast<size_t>(groups()) + 1);
  int64_t items = 0;
  for (size_t i = 0; i < order.blocks.size(); ++i) {
    if (static_cast<int64_t>(i) % layout_.blocks_per_group == 0) order.group_begin.push_back(items);
    items += used_counts_[order.blocks[i]];
    order.blocks[i] = used_blocks_[order.blocks[i]];
  }
  order.group_begin.push_back(items);
  return order;
}

std::vector<Block> SampleOrder::group_blocks(const EpochOrder& order, int64_t group) const {
  const int64_t begin = group * layout_.blocks_per_group;
  const int64_t end = std::min(begin + layout_.blocks_per_group, static_cast<int64_t>(order.blocks.size()));
  std::vector<Block> blocks;
  blocks.reserve(static_cast<size_t>(end - begin));
  for (int64_t i = begin; i < end; ++i) blocks.push_back(layout_.block(order.blocks[static_cast<size_t>(i)]));
  return blocks;
}

void SampleOrder::group_items(const EpochOrder& order, int64_t epoch, int64_t group,
                              std::vector<Slot>& out) const {
  out.clear();
  const std::vector<Block> blocks = group_blocks(order, group);
  for (size_t k = 0; k < blocks.size(); ++k) {
    for (int64_t row = 0; row < blocks[k].rows; ++row) {
      if (!rows_.contains(blocks[k].first_row + row)) continue;
      out.push_back({static_cast<uint32_t>(k) << kSlotRowBits | static_cast<uint32_t>(row)});
    }
  }
  if (shuffle_) shuffle_by_key(out, group_key(seed_, epoch, group));
}

Range SampleOrder::selected_span(const Block& block) const {
  Range span{0, block.rows};
  while (span.size() > 0 && !rows_.contains(block.first_row + span.begin)) ++span.begin;
  while (span.size() > 0 && !rows_.contains(block.first_row + span.end - 1)) --span.end;
  return span;
}

int64_t SampleOrder::bytes(int epochs) const {
  const auto blocks = static_cast<int64_t>(used_blocks_.size());
  const auto shards = static_cast<int64_t>(layout_.first_row.size());
  return rows_.universe() / 8 + 6 * blocks + 16 * shards + epochs * (4 * blocks + 8 * (groups() + 1));
}

std::shared_ptr<const EpochOrder> EpochOrders::get(int64_t epoch) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& entry) { return entry.first == epoch; });
  if (found != kept_.end()) {
    std::rotate(found, found + 1, kept_.end());
    return kept_.back().second;
  }
  if (kept_.size() == kKept) kept_.erase(kept_.begin());
  kept_.emplace_back(epoch, std::make_shared<const EpochOrder>(order_.epoch(epoch)));
  return kept_.back().second;
}

}  // namespace troika

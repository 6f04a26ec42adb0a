// Sample order: which row stands at position p of epoch e. Pure functions of (shards' sizes, which rows,
// seed, epoch); nothing here knows ranks, threads, memory or the machine.
//
//   dataset   | b0 | b1 | b2 | b3 | b4 | b5 |   blocks of consecutive rows; never across two shards
//   epoch     | b3   b0 | b5   b2 | b4   b1 |   blocks permuted, taken in groups that fit in memory
//   group 0   r17 r2 r19 r0 r3 ...              the selected rows of its blocks, permuted
//
// Without shuffling, blocks and rows keep the dataset's order. Blocks without a selected row are left out.
// An item may be `span` rows, the selected one and those after it: blocks and orders are of the selected
// rows, and the rows after a block's last one, which may lie in the next shards, are read with it. Threading:
// values; SampleOrder's const functions from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "troika/data/source.h"

namespace troika {

/// A place in a group is one 32-bit number: block << 16 | row.
constexpr int kSlotRowBits = 16;
constexpr int64_t kMaxBlockRows = 512;
constexpr int64_t kMaxBlockBytes = int64_t{1} << 20;
/// Blocks of items of several rows are larger, so that few rows are read for two of them.
constexpr int64_t kSpansPerBlock = 4;
constexpr int64_t kMaxWindowBlockRows = 32'768;
constexpr int64_t kMaxWindowBlockBytes = int64_t{8} << 20;
constexpr int64_t kMaxGroupRows = 131'072;
constexpr int64_t kMaxGroupBytes = int64_t{64} << 20;

/// A row of a group: which of its blocks, and which row in that block.
struct Slot {
  uint32_t value;
  int block() const { return static_cast<int>(value >> kSlotRowBits); }
  int64_t row() const { return value & ((uint32_t{1} << kSlotRowBits) - 1); }
};

/// Where the rows lie that a block's items begin with.
struct Block {
  int shard = 0;
  int64_t row_in_shard = 0;
  int64_t first_row = 0;  // in the dataset
  int64_t rows = 0;
};

/// How a dataset is cut into blocks. The last span - 1 rows of a shard, whose items reach into the next one,
/// are blocks of their own.
struct BlockLayout {
  explicit BlockLayout(const Dataset& dataset, int64_t span = 1);
  int64_t blocks() const { return first_block.back(); }
  Block block(int64_t index) const;
  int64_t shard_rows(int shard) const {
    return first_row[static_cast<size_t>(shard) + 1] - first_row[static_cast<size_t>(shard)];
  }
  /// Whether an item of the block could end in a later shard.
  bool crosses_shards(const Block& block) const {
    return block.row_in_shard + block.rows + span - 1 > shard_rows(block.shard);
  }

  int64_t span = 1;
  int64_t block_rows = 1;
  int64_t blocks_per_group = 1;
  std::vector<int64_t> first_block;  // per shard, and the total at the end
  std::vector<int64_t> first_row;    // likewise

 private:
  int64_t blocks_of(int64_t rows) const { return (rows + block_rows - 1) / block_rows; }
};

/// An epoch's blocks in their order, and where its groups begin.
struct EpochOrder {
  std::vector<uint32_t> blocks;
  std::vector<int64_t> group_begin;  // positions; the number of items at the end
  int64_t groups() const { return static_cast<int64_t>(group_begin.size()) - 1; }
  int64_t group_of(int64_t position) const;
};

class SampleOrder {
 public:
  /// `rows` are the items' first ones; every item lies within the dataset.
  SampleOrder(const Dataset& dataset, const RowSet& rows, uint64_t seed, bool shuffle, int64_t span = 1);

  int64_t size() const { return size_; }
  const BlockLayout& layout() const { return layout_; }

  /// Groups in every epoch; the most items and blocks of one; the most rows that they take, those after each
  /// block and those between items included; and how many of these are in blocks that cross shards.
  int64_t groups() const;
  int64_t group_items() const;
  int64_t group_blocks() const;
  int64_t group_rows() const;
  int64_t group_crossing_rows() const;

  /// O(blocks).
  EpochOrder epoch(int64_t epoch) const;

  /// The blocks of a group, in order.
  std::vector<Block> group_blocks(const EpochOrder& order, int64_t group) const;

  /// The rows of a group in the order of their positions; Slot::block counts within group_blocks.
  void group_items(const EpochOrder& order, int64_t epoch, int64_t group, std::vector<Slot>& out) const;

  /// Selected rows of a block, as the smallest range of its rows that holds them all.
  Range selected_span(const Block& block) const;

  /// What it and `epochs` EpochOrders hold.
  int64_t bytes(int epochs) const;

 private:
  BlockLayout layout_;
  RowSet rows_;
  uint64_t seed_;
  bool shuffle_;
  int64_t size_ = 0;
  int64_t used_rows_ = 0;              // of the blocks with a selected row
  int64_t crossing_blocks_ = 0;        // of them
  int64_t most_items_ = 0;             // of a block
  std::vector<uint32_t> used_blocks_;  // those with a selected row
  std::vector<uint16_t> used_counts_;  // how many
};

/// The orders of the epochs in use: computed once each, the last kKept are held. Thread-safe.
class EpochOrders {
 public:
  static constexpr int kKept = 3;  // the present one, the one read ahead, and one that a report asks for
  explicit EpochOrders(const SampleOrder& order) : order_(order) {}
  std::shared_ptr<const EpochOrder> get(int64_t epoch);

 private:
  const SampleOrder& order_;
  std::mutex mutex_;
  std::vector<std::pair<int64_t, std::shared_ptr<const EpochOrder>>> kept_;  // least recently asked for first
};

}  // namespace troika

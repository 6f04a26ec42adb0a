// One pass over the files: blocks are parsed by many threads and merged in order. Used by pack() only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "troika/data/pack.h"
#include "troika/data/shard_writer.h"

namespace troika {

/// What a pass learns about a column.
struct ColumnResult {
  int64_t nulls = 0, beyond_float = 0, infinite = 0;
  int64_t unseen = 0;        // cells that the fixed dictionary doesn't have; among the nulls
  std::string first_unseen;  // the text of the first
  CellKinds kinds;
  Moments moments;
  Dictionary dictionary;  // given before run() if the columns are fixed, and then it stays as it is
  uint32_t least_code = UINT32_MAX, most_code = 0;  // of the rows, category only
  bool left_out = false;                            // its dictionary grew beyond the limit
  std::optional<Contradiction> contradiction;       // line within the file
  size_t contradiction_file = 0;
};

class PackPass {
 public:
  PackPass(const PackOptions& options, const Sniff& sniff, RowLayout layout, const Path& folder);

  /// Runs to the end, or throws what the first thread threw.
  void run(int pass, const std::function<void(const PackProgress&)>& progress);

  /// Whether every cell could be stored as the layout says, as far as a single cell can tell.
  bool contradicted() const { return contradicted_; }
  const RowLayout& layout() const { return layout_; }

  // The results; valid after run().
  std::vector<ColumnResult> columns;
  std::vector<Shard> shards;
  std::vector<RejectedRow> first_rejects;
  int64_t rows = 0, rejected = 0;
  uint64_t text_bytes = 0, fingerprint = 0;

 private:
  void work();
  bool next_block(CsvBlock& block);
  bool wait_for_turn(size_t index);
  void end_turn();
  void stop(std::exception_ptr error);
  void merge(const CsvBlock& block, Chunk& chunk, uint64_t block_hash);
  void merge_column(size_t column, Chunk& chunk);
  void learn_texts(ColumnResult& column, std::span<const std::string_view> texts);
  void find_texts(ColumnResult& column, std::span<const std::string_view> texts);
  void limit_dictionaries();
  void leave_out(size_t column);

  const PackOptions& options_;
  CsvDialect dialect_;
  RowLayout layout_;

  std::mutex reading_;  // never held together with turns_
  CsvReader reader_;

  std::mutex turns_;  // guards what follows; whoever has the turn also owns the results
  std::condition_variable turn_came_;
  size_t turn_ = 0;
  size_t running_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> file_position_{0}, merged_bytes_{0};
  std::atomic<int64_t> merged_rows_{0};

  ShardWriter writer_;
  RejectFile rejects_;
  bool contradicted_ = false;
  int64_t line_ = 1;             // of the block whose turn it is
  std::vector<uint32_t> codes_;  // of the texts of a block
};

}  // namespace troika

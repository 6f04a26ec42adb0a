#include "troika/data/pack_pass.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "troika/base/clock.h"
#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/random.h"
#include "troika/data/manifest.h"

namespace troika {
namespace {

constexpr uint32_t kMostCategories = uint32_t{1} << 24;  // codes are float32
constexpr uint32_t kUnseen = UINT32_MAX;

}  // namespace

PackPass::PackPass(const PackOptions& options, const Sniff& sniff, RowLayout layout, const Path& folder)
    : columns(layout.readers.size()),
      options_(options),
      dialect_(sniff.dialect),
      layout_(std::move(layout)),
      reader_(options.files, sniff.dialect, sniff.names(), options.limits),
      writer_(folder, layout_.float_columns, layout_.int_columns, options.shard_bytes,
              options.checksum_block_bytes),
      rejects_(folder / kRejectsName) {}

namespace {

void fail_if_interrupted() {
  if (interrupted()) fail("interrupted; nothing was written");
}

}  // namespace

void PackPass::run(int pass, const std::function<void(const PackProgress&)>& progress) {
  uint64_t file_bytes = 0;
  for (const Path& file : options_.files) file_bytes += std::filesystem::file_size(file);
  const auto start = Clock::now();
  running_ = static_cast<size_t>(options_.threads);
  std::vector<std::jthread> workers;
  try {
    for (int i = 0; i < options_.threads; ++i) workers.emplace_back([this] { work(); });
    std::unique_lock lock(turns_);
    while (!turn_came_.wait_for(lock, std::chrono::milliseconds(100), [this] { return running_ == 0; })) {
      lock.unlock();
      progress({pass, file_position_.load(), file_bytes, merged_bytes_.load(), merged_rows_.load(),
                seconds_since(start)});
      fail_if_interrupted();
      lock.lock();
    }
    fail_if_interrupted();  // also one that came since the last look
  } catch (...) {
    stop(std::current_exception());
  }
  workers.clear();
  if (error_) std::rethrow_exception(error_);
  text_bytes = reader_.text_bytes();
  rejected = rejects_.count();
  first_rejects = rejects_.first_few();
  rejects_.close();
  shards = writer_.finish();
}

void PackPass::work() {
  try {
    CsvBlock block;
    Chunk chunk;
    BlockParser parser(layout_, dialect_, options_.limits);
    while (next_block(block)) {
      const uint64_t block_hash = hash64(block.text());  // before quotes are undoubled in place
      parser.parse(block, chunk);
      if (!wait_for_turn(block.index)) break;
      merge(block, chunk, block_hash);
      end_turn();
    }
  } catch (...) {
    stop(std::current_exception());
  }
  const std::lock_guard lock(turns_);
  --running_;
  turn_came_.notify_all();
}

bool PackPass::next_block(CsvBlock& block) {
  const std::lock_guard lock(reading_);
  if (stopped_ || !reader_.next(block)) return false;
  file_position_ = reader_.file_position();
  return true;
}

// Blocks are merged in the order of the files. The block whose turn it is is always in some thread's hands,
// so every wait ends, or stop() ends it.
bool PackPass::wait_for_turn(size_t index) {
  std::unique_lock lock(turns_);
  turn_came_.wait(lock, [&] { return stopped_ || turn_ == index; });
  return !stopped_;
}

void PackPass::end_turn() {
  const std::lock_guard lock(turns_);
  ++turn_;
  turn_came_.notify_all();
}

void PackPass::stop(std::exception_ptr error) {
  const std::lock_guard lock(turns_);
  if (!error_) error_ = std::move(error);
  stopped_ = true;
  turn_came_.notify_all();
}

void PackPass::merge(const CsvBlock& block, Chunk& chunk, uint64_t block_hash) {
  if (block.first_line > 0) line_ = block.first_line;
  fingerprint = mix_keys(fingerprint, block_hash);
  rejects_.append(block, chunk.rejects, options_.files[block.file].string(), line_);
  for (size_t i = 0; i < columns.size(); ++i) {
    ColumnResult& column = columns[i];
    if (ColumnChunk& part = chunk.columns[i]; part.contradiction && !column.contradiction) {
      column.contradiction = std::move(part.contradiction);
      column.contradiction->line += line_;
      column.contradiction_file = block.file;
      contradicted_ = true;
    }
    merge_column(i, chunk);
  }
  if (layout_.fixed.empty()) limit_dictionaries();
  // Once a cell contradicts, there will be another pass; this one goes on to learn all the others.
  if (!contradicted_) writer_.append(chunk.rows, chunk.floats, chunk.ints);
  rows += chunk.rows;
  line_ += chunk.lines;
  merged_bytes_ += block.size;
  merged_rows_ = rows;
}

void PackPass::merge_column(size_t index, Chunk& chunk) {
  ColumnResult& column = columns[index];
  const ColumnChunk& part = chunk.columns[index];
  column.nulls += part.nulls;
  column.beyond_float += part.beyond_float;
  column.infinite += part.infinite;
  column.kinds.add(part.kinds);
  column.moments.add(part.moments);
  if (layout_.readers[index] != CellReader::category) return;
  codes_.clear();
  if (layout_.fixed.empty())
    learn_texts(column, part.dictionary.texts());
  else
    find_texts(column, part.dictionary.texts());
  if (column.left_out || contradicted_) return;
  float* cell = chunk.floats.data() + layout_.indices[index];
  for (int64_t row = 0; row < chunk.rows; ++row, cell += layout_.float_columns) {
    if (std::isnan(*cell)) continue;
    const uint32_t code = codes_[static_cast<size_t>(*cell)];
    if (code == kUnseen) {
      *cell = kNullFloat;
      ++column.unseen;
      ++column.nulls;
      continue;
    }
    *cell = static_cast<float>(code);
    column.least_code = std::min(column.least_code, code);
    column.most_code = std::max(column.most_code, code);
  }
}

void PackPass::learn_texts(ColumnResult& column, std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    const auto [code, fresh] = column.left_out ? std::pair(uint32_t{0}, true) : column.dictionary.code(text);
    codes_.push_back(code);
    // A column that holds one text is a category whatever else comes.
    if (fresh && !column.kinds.has(CellKind::text)) column.kinds.add(read_cell(text).kind);
  }
}

void PackPass::find_texts(ColumnResult& column, std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    const std::optional<uint32_t> code = column.dictionary.find(text);
    codes_.push_back(code.value_or(kUnseen));
    if (!code && column.first_unseen.empty()) column.first_unseen = text;
  }
}

void PackPass::leave_out(size_t column) {
  columns[column].left_out = true;
  columns[column].dictionary = {};
  contradicted_ = true;  // the shards must do without it
}

void PackPass::limit_dictionaries() {
  while (true) {
    uint64_t total = 0;
    size_t largest = 0;
    for (size_t i = 0; i < columns.size(); ++i) {
      const Dictionary& dictionary = columns[i].dictionary;
      total += dictionary.bytes();
      if (dictionary.bytes() > columns[largest].dictionary.bytes()) largest = i;
    }
    const Dictionary& dictionary = columns[largest].dictionary;
    if (total <= options_.all_dictionaries_bytes && dictionary.bytes() <= options_.dictionary_bytes &&
        dictionary.size() <= kMostCategories) {
      return;
    }
    leave_out(largest);
  }
}

}  // namespace troika

#include "troika/data/pack_text.h"

#include <algorithm>

#include "troika/base/clock.h"
#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/random.h"
#include "troika/data/csv_input.h"
#include "troika/data/pack_folder.h"
#include "troika/data/shard_writer.h"
#include "troika/data/text_data.h"

namespace troika {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;  // at once; the fingerprint is of blocks of this size

class TextPass {
 public:
  TextPass(const PackOptions& options, const Path& folder)
      : options_(options),
        columns_(options.files.size() > 1 ? 2 : 1),
        writer_(folder, columns_, 0, options.shard_bytes, options.checksum_block_bytes),
        bytes_(kReadBytes) {
    for (const Path& file : options.files) at_.file_bytes += CsvInput(file, FileContent::any).file_bytes();
  }

  void run(const std::function<void(const PackProgress&)>& progress) {
    const auto start = Clock::now();
    for (size_t file = 0; file < options_.files.size(); ++file) {
      CsvInput input(options_.files[file], FileContent::any);
      const uint64_t done_before = at_.file_bytes_done, text_before = at_.text_bytes;
      while (const size_t count = input.read(bytes_)) {
        if (interrupted()) fail("interrupted; nothing was packed");
        append(file, std::span(bytes_).first(count));
        at_.file_bytes_done = done_before + input.file_position();
        at_.pass_seconds = seconds_since(start);
        progress(at_);
      }
      at_.file_bytes_done = done_before + input.file_bytes();
      if (at_.text_bytes == text_before) {
        fail("{} is empty; nothing was packed{}", options_.files[file].string(),
             options_.files.size() > 1 ? ", leave it out" : "");
      }
    }
  }

  Dataset dataset() {
    Dataset dataset;
    dataset.folder = options_.output;
    dataset.rows = at_.rows;
    dataset.float_columns = columns_;
    dataset.checksum_block_bytes = options_.checksum_block_bytes;
    Column& byte = dataset.columns.emplace_back();
    byte.name = kByteColumn;
    byte.type = ColumnType::category;
    byte.minimum = least_;
    byte.maximum = most_;
    byte.categories = byte_names();
    if (columns_ > 1) {
      Column& file = dataset.columns.emplace_back();
      file.name = kFileColumn;
      file.type = ColumnType::category;
      file.index = 1;
      file.maximum = static_cast<double>(options_.files.size() - 1);
      for (const Path& path : options_.files) file.categories.push_back(path.string());
    }
    dataset.shards = writer_.finish();
    dataset.source_path = joined_paths(options_.files);
    dataset.source_bytes = at_.text_bytes;
    dataset.source_fingerprint = fingerprint_;
    return dataset;
  }

  uint64_t text_bytes() const { return at_.text_bytes; }
  uint64_t file_bytes() const { return at_.file_bytes; }

 private:
  void append(size_t file, std::span<const char> bytes) {
    rows_.clear();
    for (const char byte : bytes) {
      const int value = static_cast<unsigned char>(byte);
      least_ = std::min(least_, value);
      most_ = std::max(most_, value);
      rows_.push_back(static_cast<float>(value));
      if (columns_ > 1) rows_.push_back(static_cast<float>(file));
    }
    fingerprint_ = mix_keys(fingerprint_, hash64({bytes.data(), bytes.size()}));
    writer_.append(static_cast<int64_t>(bytes.size()), rows_, {});
    at_.text_bytes += bytes.size();
    at_.rows += static_cast<int64_t>(bytes.size());
  }

  const PackOptions& options_;
  int columns_;
  ShardWriter writer_;
  std::vector<char> bytes_;
  std::vector<float> rows_;
  PackProgress at_;
  int least_ = kByteValues - 1, most_ = 0;
  uint64_t fingerprint_ = 0;
};

void require_different(const std::vector<Path>& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    if (std::find(files.begin(), files.begin() + static_cast<ptrdiff_t>(i), files[i]) !=
        files.begin() + static_cast<ptrdiff_t>(i)) {
      fail_usage("{} is named twice; each file is a series of its own, so name it once", files[i].string());
    }
  }
}

}  // namespace

PackReport pack_text(const PackOptions& options, const std::function<void(const PackProgress&)>& progress) {
  const auto start = Clock::now();
  require_replaceable(options);
  require_different(options.files);
  for (const Path& file : options.files) open_to_read(file);  // a missing one is said before the work begins
  FolderInProgress folder(options.output, options.overwrite);
  TextPass pass(options, folder.path());
  pass.run(progress);
  PackReport report;
  report.text_bytes = pass.text_bytes();
  report.file_bytes = pass.file_bytes();
  seal(pass.dataset(), folder, report);
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace troika

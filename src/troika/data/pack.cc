#include "troika/data/pack.h"

#include <algorithm>

#include "troika/base/clock.h"
#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/data/pack_folder.h"
#include "troika/data/pack_like.h"
#include "troika/data/pack_pass.h"

namespace troika {
namespace {

// Two at most: the first pass sees every cell, so the second one knows.
constexpr int kMostPasses = 3;

void clear_folder(const Path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove(entry.path());
}

void require_rows(const PackPass& pass, const PackOptions& options) {
  if (pass.rows > 0) return;
  const std::string files =
      options.files.size() == 1 ? options.files[0].string() : fmt::format("{} files", options.files.size());
  if (pass.rejected == 0) fail("{}: a header, but no rows under it; nothing was packed", files);
  const RejectedRow& first = pass.first_rejects.front();
  fail("{}: all {} rows were rejected, nothing was packed; the first one, line {}: {}: {}", files,
       with_commas(pass.rejected), first.line, first.reason, first.text);
}

Column finished_column(const std::string& name, ColumnShape shape, ColumnResult& result, int index) {
  Column column;
  column.name = name;
  column.type = shape.type;
  column.storage = shape.storage;
  column.index = index;
  column.nulls = result.nulls;
  switch (shape.type) {
    case ColumnType::number:
    case ColumnType::integer:
    case ColumnType::boolean:
      column.mean = result.moments.mean;
      column.deviation = result.moments.deviation();
      [[fallthrough]];
    case ColumnType::timestamp:
      column.minimum = result.moments.minimum;
      column.maximum = result.moments.maximum;
      break;
    case ColumnType::category:
      column.categories = result.dictionary.take();
      column.minimum = std::min(result.least_code, result.most_code);
      column.maximum = result.most_code;
      break;
  }
  return column;
}

void add_found_columns(const Sniff& sniff, PackPass& pass, Dataset& dataset) {
  const RowLayout& layout = pass.layout();
  for (size_t i = 0; i < sniff.columns.size(); ++i) {
    const std::string& name = sniff.columns[i].name;
    if (layout.readers[i] == CellReader::skip) {
      dataset.left_out.push_back(name);
      continue;
    }
    ColumnResult& result = pass.columns[i];
    dataset.columns.push_back(finished_column(name, shape_of(result.kinds), result, layout.indices[i]));
  }
}

void add_columns_like(const LikeColumns& like, PackPass& pass, Dataset& dataset) {
  for (size_t i = 0; i < like.columns().size(); ++i) {
    const Column& model = like.columns()[i];
    const int source = like.source_of(i);
    ColumnResult absent;
    if (source < 0) {
      absent.nulls = pass.rows;
      absent.dictionary = like.dictionary(i);
    }
    ColumnResult& result = source < 0 ? absent : pass.columns[static_cast<size_t>(source)];
    dataset.columns.push_back(finished_column(model.name, {model.type, model.storage}, result, model.index));
  }
  dataset.left_out = like.left_out();
}

Dataset finished_dataset(const PackOptions& options, const Sniff& sniff, const LikeColumns* like,
                         PackPass& pass) {
  Dataset dataset;
  dataset.folder = options.output;
  dataset.rows = pass.rows;
  dataset.rejected_rows = pass.rejected;
  dataset.float_columns = pass.layout().float_columns;
  dataset.int_columns = pass.layout().int_columns;
  dataset.checksum_block_bytes = options.checksum_block_bytes;
  if (like != nullptr)
    add_columns_like(*like, pass, dataset);
  else
    add_found_columns(sniff, pass, dataset);
  dataset.shards = std::move(pass.shards);
  dataset.source_path = joined_paths(options.files);
  dataset.source_bytes = pass.text_bytes;
  dataset.source_fingerprint = pass.fingerprint;
  return dataset;
}

// The readers that the whole truth asks for; `changed` says which columns they differ for.
std::vector<CellReader> corrected_readers(const PackPass& pass) {
  std::vector<CellReader> readers = pass.layout().readers;
  for (size_t i = 0; i < readers.size(); ++i) {
    if (readers[i] == CellReader::skip) continue;
    const CellReader found = reader_of(shape_of(pass.columns[i].kinds));
    readers[i] = pass.columns[i].left_out && found == CellReader::category ? CellReader::skip : found;
  }
  return readers;
}

void note_widened(const PackPass& pass, const std::vector<CellReader>& corrected, const PackOptions& options,
                  const Sniff& sniff, PackReport& report) {
  for (size_t i = 0; i < corrected.size(); ++i) {
    if (corrected[i] == pass.layout().readers[i] || corrected[i] == CellReader::skip) continue;
    const ColumnResult& column = pass.columns[i];
    WidenedColumn widened{
        sniff.columns[i].name, shape_of(sniff.columns[i].kinds), shape_of(column.kinds), "", 0, ""};
    if (column.contradiction) {
      widened.file = options.files[column.contradiction_file].string();
      widened.line = column.contradiction->line;
      widened.text = column.contradiction->text;
    }
    report.widened.push_back(std::move(widened));
  }
}

void note_losses(const PackPass& pass, const Sniff& sniff, PackReport& report) {
  for (size_t i = 0; i < pass.columns.size(); ++i) {
    const ColumnResult& column = pass.columns[i];
    const std::vector<FixedColumn>& fixed = pass.layout().fixed;
    const ColumnShape shape = fixed.empty() ? shape_of(column.kinds) : fixed[i].shape;
    const bool rounded = shape.type == ColumnType::number && column.kinds.has(CellKind::wide_integer);
    if (column.beyond_float > 0 || column.infinite > 0 || rounded) {
      report.losses.push_back({sniff.columns[i].name, column.beyond_float, column.infinite, rounded});
    }
  }
}

RowLayout sampled_layout(const Sniff& sniff) {
  std::vector<CellReader> readers;
  for (const SniffedColumn& column : sniff.columns) readers.push_back(reader_of(shape_of(column.kinds)));
  return RowLayout(std::move(readers));
}

void give_dictionaries(const LikeColumns& like, PackPass& pass) {
  for (size_t i = 0; i < like.columns().size(); ++i) {
    const int source = like.source_of(i);
    if (source >= 0) pass.columns[static_cast<size_t>(source)].dictionary = like.dictionary(i);
  }
}

void note_differences(const LikeColumns& like, const PackPass& pass, PackReport& report) {
  for (size_t i = 0; i < like.columns().size(); ++i) {
    const std::string& name = like.columns()[i].name;
    const int source = like.source_of(i);
    if (source < 0) {
      report.absent.push_back(name);
      continue;
    }
    const ColumnResult& result = pass.columns[static_cast<size_t>(source)];
    if (result.unseen > 0) report.unseen.push_back({name, result.unseen, result.first_unseen});
  }
}

}  // namespace

PackReport pack(const PackOptions& options, const Sniff& sniff,
                const std::function<void(const PackProgress&)>& progress) {
  const auto start = Clock::now();
  require_replaceable(options);
  for (const Path& file : options.files) open_to_read(file);  // a missing one is said before the work begins
  if (options.like && options.overwrite) require_apart(options.output, options.like->folder);
  std::optional<LikeColumns> like;
  if (options.like) like.emplace(*options.like, sniff, options.files.front());
  FolderInProgress folder(options.output, options.overwrite);
  PackReport report;
  RowLayout layout = like ? like->layout() : sampled_layout(sniff);
  for (report.passes = 1;; ++report.passes) {
    PackPass pass(options, sniff, layout, folder.path());
    if (like) give_dictionaries(*like, pass);
    pass.run(report.passes, progress);
    require_rows(pass, options);
    std::vector<CellReader> corrected = like ? layout.readers : corrected_readers(pass);
    if (std::ranges::all_of(corrected, [](CellReader reader) { return reader == CellReader::skip; })) {
      fail("every column has more different texts than fit into {}; nothing was packed",
           human_bytes(static_cast<double>(options.dictionary_bytes)));
    }
    if (corrected == layout.readers && !pass.contradicted()) {
      note_losses(pass, sniff, report);
      if (like) note_differences(*like, pass, report);
      report.text_bytes = pass.text_bytes;
      for (const Path& file : options.files) report.file_bytes += std::filesystem::file_size(file);
      report.first_rejects = pass.first_rejects;
      seal(finished_dataset(options, sniff, like ? &*like : nullptr, pass), folder, report);
      report.seconds = seconds_since(start);
      return report;
    }
    TROIKA_ASSERT(!like, "a row that contradicts the given columns was not rejected");
    if (report.passes == kMostPasses)
      fail("the files changed while they were read; nothing was packed, try again");
    note_widened(pass, corrected, options, sniff, report);
    layout = RowLayout(std::move(corrected));
    clear_folder(folder.path());
  }
}

}  // namespace troika

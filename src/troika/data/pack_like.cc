#include "troika/data/pack_like.h"

#include <algorithm>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/data/manifest.h"

namespace troika {
namespace {

constexpr size_t kListBytes = 300;

std::string list_of_names(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    if (list.size() > kListBytes) return list + ", ...";
    list += (list.empty() ? "" : ", ") + printable(name, 60);
  }
  return list;
}

std::vector<std::string> names_of(const std::vector<Column>& columns) {
  std::vector<std::string> names;
  for (const Column& column : columns) names.push_back(column.name);
  return names;
}

std::vector<CellReader> all_skipped(const Sniff& sniff) {
  return std::vector<CellReader>(sniff.columns.size(), CellReader::skip);
}

}  // namespace

LikeColumns::LikeColumns(const Dataset& like, const Sniff& sniff, const Path& file)
    : like_(like), layout_(all_skipped(sniff)) {
  layout_.float_columns = like.float_columns;
  layout_.int_columns = like.int_columns;
  for (const SniffedColumn& column : sniff.columns) layout_.fixed.push_back({column.name, {}});
  const std::vector<std::string> names = sniff.names();
  for (const Column& column : like.columns) {
    const auto found = std::ranges::find(names, column.name);
    if (found == names.end()) {
      (column.storage == Storage::floats ? layout_.null_floats : layout_.null_ints).push_back(column.index);
      sources_.push_back(-1);
      continue;
    }
    const auto source = static_cast<size_t>(found - names.begin());
    const ColumnShape shape{column.type, column.storage};
    layout_.fixed[source].shape = shape;
    layout_.readers[source] = reader_of(shape);
    layout_.indices[source] = column.index;
    sources_.push_back(static_cast<int>(source));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (layout_.readers[i] == CellReader::skip) left_out_.push_back(names[i]);
  }
  if (left_out_.size() == names.size()) {
    fail("{} has none of the columns of {} ({}); it has {}", file.string(), like.folder.string(),
         list_of_names(names_of(like.columns)), list_of_names(names));
  }
}

Dictionary LikeColumns::dictionary(size_t index) const {
  Dictionary dictionary;
  const Column& column = like_.columns[index];
  for (const std::string& text : column.categories) {
    if (dictionary.code(text).second) continue;
    fail("{}: the category \"{}\" of column \"{}\" is there twice; the manifest is damaged, pack again",
         (like_.folder / kManifestName).string(), printable(text, 60), column.name);
  }
  return dictionary;
}

void require_apart(const Path& output, const Path& like) {
  std::error_code error;
  if (!std::filesystem::exists(output, error)) return;
  const Path whole = std::filesystem::canonical(output, error);
  for (Path folder = std::filesystem::canonical(like, error); !folder.empty();
       folder = folder.parent_path()) {
    if (folder == whole) {
      fail_usage("--like {} is needed, but --overwrite would remove it; choose another name than {}",
                 like.string(), output.string());
    }
    if (folder == folder.root_path()) return;
  }
}

}  // namespace troika

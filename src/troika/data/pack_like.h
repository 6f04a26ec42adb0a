// The columns of an existing dataset for the rows of new files: which column of the file fills which place,
// found by name. Used by pack() only. A value that refers to the dataset it was made for.
#pragma once

#include <string>
#include <vector>

#include "troika/data/csv_parse.h"
#include "troika/data/csv_sniff.h"
#include "troika/data/dataset.h"

namespace troika {

class LikeColumns {
 public:
  /// `file` is for messages. Throws Error if the file has none of the dataset's columns.
  LikeColumns(const Dataset& like, const Sniff& sniff, const Path& file);

  const RowLayout& layout() const { return layout_; }
  const std::vector<Column>& columns() const { return like_.columns; }
  /// Which column of the file fills column `index` of the dataset; -1 if none does.
  int source_of(size_t index) const { return sources_[index]; }
  /// Columns of the file that the dataset doesn't have, in the file's order.
  const std::vector<std::string>& left_out() const { return left_out_; }
  /// The texts of column `index` under the dataset's codes. Throws Error if one is there twice.
  Dictionary dictionary(size_t index) const;

 private:
  const Dataset& like_;
  RowLayout layout_;
  std::vector<int> sources_;
  std::vector<std::string> left_out_;
};

/// Throws UsageError if replacing the output would remove the dataset whose columns are taken.
void require_apart(const Path& output, const Path& like);

}  // namespace troika

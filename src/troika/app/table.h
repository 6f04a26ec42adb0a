// Aligned tables, and how a dataset's column is shown in them and as JSON. Pure; thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "troika/data/dataset.h"

namespace troika {

class Table {
 public:
  /// `right[i]`: column i is aligned to the right (numbers).
  Table(std::vector<std::string> header, std::vector<bool> right);
  void add(std::vector<std::string> row);
  /// With a line end after each row.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
};

/// name, type, nulls, min, max, mean.
std::vector<std::string> column_summary(const Column& column);

nlohmann::ordered_json column_json(const Column& column);

}  // namespace troika

// Aligned tables for people. Threading: a value; calls to one from one thread.
#pragma once

#include <string>
#include <vector>

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

}  // namespace troika

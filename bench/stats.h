// What every benchmark needs: medians with spread, and a table. Pure functions; thread-safe.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace troika::bench {

/// The median and the quartiles, in the unit of the samples.
struct Spread {
  double low = 0;  // first quartile
  double median = 0;
  double high = 0;  // third quartile
};

inline Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    const double place = part * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<size_t>(std::floor(place));
    const size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

/// Rows of cells, printed with aligned columns: the first to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> heads) { rows_.push_back(std::move(heads)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  void print(std::FILE* to = stdout) const {
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) {
        fmt::print(
            to, "{}{}", i == 0 ? "" : "  ",
            i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]));
      }
      fmt::print(to, "\n");
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace troika::bench

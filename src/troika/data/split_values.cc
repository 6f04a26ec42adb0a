#include "troika/data/split_values.h"

#include <algorithm>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"
#include "troika/data/csv_value.h"

namespace troika {
namespace {

constexpr uint64_t kSplitTag = 0x73706C6974;
// By days if there are at least this many days with rows for each part, else by the exact time.
constexpr size_t kDaysPerPart = 3;

}  // namespace

TargetColumns::TargetColumns(const Dataset& dataset, const std::vector<std::string>& names)
    : dataset_(dataset) {
  for (const std::string& name : names) columns_.push_back(&dataset.column(name));
}

bool TargetColumns::has_all(const RowBuffer& rows, int64_t row) const {
  return std::none_of(columns_.begin(), columns_.end(),
                      [&](const Column* column) { return is_null_at(dataset_, rows, row, *column); });
}

void check_shares(const SplitOptions& options) {
  const auto fine = [](double share) { return share >= 0 && share < 1; };  // false for NaN, too
  if (!fine(options.validation) || !fine(options.test) || options.validation + options.test >= 1) {
    fail_usage(
        "split: validation = {} and test = {} must be shares from 0 to below 1 that leave something to train "
        "on; for example 0.1 and 0.1",
        options.validation, options.test);
  }
}

uint64_t split_key(uint64_t seed) { return mix_keys(seed, kSplitTag); }

size_t random_part(const SplitOptions& options, int64_t row) {
  const double u = uniform(split_key(options.seed), static_cast<uint64_t>(row));
  return u < options.test ? 2 : u < options.test + options.validation ? 1 : 0;
}

const Column& time_column(const Dataset& dataset, const std::string& name, const std::string& purpose) {
  std::vector<std::string> candidates;
  for (const Column& column : dataset.columns) {
    if (column.type == ColumnType::timestamp || column.type == ColumnType::integer)
      candidates.push_back(column.name);
  }
  const std::string choice =
      candidates.empty() ? "this dataset has none: leave it out, and split by = \"random\" or \"series\""
                         : fmt::format("columns that could be it: {}", fmt::join(candidates, ", "));
  if (name.empty())
    fail_usage("{} needs a column of timestamps or whole numbers, but none is named; {}", purpose, choice);
  const Column& column = dataset.column(name);
  if (column.type != ColumnType::timestamp && column.type != ColumnType::integer) {
    fail_usage("{} needs a column of timestamps or whole numbers, but \"{}\" is of type {}; {}", purpose,
               name, name_of(column.type), choice);
  }
  return column;
}

std::string time_text(const Column& column, int64_t time) {
  return column.type == ColumnType::timestamp ? timestamp_text(time) : fmt::to_string(time);
}

ChosenCuts choose_cuts(const Dataset& dataset, const Column& column, const RowSet& usable,
                       const RowsOfDay& rows_of_day, const SplitOptions& options) {
  const size_t parts = 1 + (options.validation > 0) + (options.test > 0);
  ChosenCuts chosen;
  chosen.whole_days = rows_of_day.size() >= kDaysPerPart * parts;
  std::optional<TimeCuts> cuts;
  if (chosen.whole_days) {
    cuts = cut_days(rows_of_day, options.validation, options.test);
  } else {
    // Few days or plain numbers: the times themselves, 8 bytes a row while this runs.
    std::vector<int64_t> times;
    times.reserve(static_cast<size_t>(usable.count()));
    for_each_row(dataset, usable, [&](int64_t, const RowBuffer& rows, int64_t i) {
      times.push_back(whole_at(dataset, rows, i, column));
    });
    cuts = cut_times(times, options.validation, options.test);
  }
  if (!cuts) {
    fail(
        "split: \"{}\" has too few different values to cut {} rows with a target and a time into parts of "
        "{:.3g}, {:.3g} and {:.3g}; use fewer parts, split by = \"random\", or add data",
        column.name, with_commas(usable.count()), share_of(options, 0), options.validation, options.test);
  }
  chosen.cuts = *cuts;
  return chosen;
}

}  // namespace troika

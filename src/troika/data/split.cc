#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"
#include "troika/data/source.h"
#include "troika/data/split_time.h"

namespace troika {
namespace {

constexpr int64_t kNullInt = std::numeric_limits<int64_t>::min();
constexpr uint64_t kSplitTag = 0x73706C6974;  // so that no other use of the seed draws the same numbers
// By days if there are at least this many days with rows for each part, else by the exact time.
constexpr size_t kDaysPerPart = 3;

bool is_null(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column) {
  if (column.storage == Storage::floats) {
    return std::isnan(rows.floats[static_cast<size_t>(row * dataset.float_columns + column.index)]);
  }
  return rows.ints[static_cast<size_t>(row * dataset.int_columns + column.index)] == kNullInt;
}

// The value of an integer or timestamp column that isn't null; a whole number in float32 is exact.
int64_t whole_value(const Dataset& dataset, const RowBuffer& rows, int64_t row, const Column& column) {
  if (column.storage == Storage::floats) {
    return static_cast<int64_t>(rows.floats[static_cast<size_t>(row * dataset.float_columns + column.index)]);
  }
  return rows.ints[static_cast<size_t>(row * dataset.int_columns + column.index)];
}

// Calls `visit(row number, rows, index in rows)` for each row of `selected`.
template <typename Visit>
void for_each_row(const Dataset& dataset, const RowSet& selected, const Visit& visit) {
  int64_t next = 0;
  scan_rows(dataset, selected, [&](const RowBuffer& rows) {
    for (int64_t i = 0; i < rows.rows; ++i, ++next) {
      while (!selected.contains(next)) ++next;
      visit(next, rows, i);
    }
  });
}

const Column& time_column(const Dataset& dataset, const std::string& name) {
  std::vector<std::string> candidates;
  for (const Column& column : dataset.columns) {
    if (column.type == ColumnType::timestamp || column.type == ColumnType::integer)
      candidates.push_back(column.name);
  }
  const std::string choice = candidates.empty()
                                 ? "this dataset has none, so split by = \"random\""
                                 : fmt::format("columns that could be it: {}", fmt::join(candidates, ", "));
  if (name.empty())
    fail_usage("a split by time needs a column of timestamps or whole numbers, but none is named; {}",
               choice);
  const Column& column = dataset.column(name);
  if (column.type != ColumnType::timestamp && column.type != ColumnType::integer) {
    fail_usage("a split by time needs a column of timestamps or whole numbers, but \"{}\" is of type {}; {}",
               name, name_of(column.type), choice);
  }
  return column;
}

void check_shares(const SplitOptions& options) {
  const auto fine = [](double share) { return share >= 0 && share < 1; };  // false for NaN, too
  if (!fine(options.validation) || !fine(options.test) || options.validation + options.test >= 1) {
    fail_usage(
        "split: validation = {} and test = {} must be shares from 0 to below 1 that leave something to train "
        "on; "
        "for example 0.1 and 0.1",
        options.validation, options.test);
  }
}

// One part: its rows, and what range of times they have.
struct Part {
  const char* name;
  RowSet* rows;
  double share;
  int64_t count = 0;
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = std::numeric_limits<int64_t>::min();

  void add(int64_t row, int64_t time) {
    rows->set(row, true);
    ++count;
    first = std::min(first, time);
    last = std::max(last, time);
  }
};

class Splitter {
 public:
  Splitter(const Dataset& dataset, const std::vector<std::string>& targets, const SplitOptions& options)
      : dataset_(dataset), options_(options), usable_(dataset.rows) {
    check_shares(options);
    for (const std::string& target : targets) targets_.push_back(&dataset.column(target));
    split_.train = split_.validation = split_.test = RowSet(dataset.rows);
    parts_ = {{{"train", &split_.train, 1 - options.validation - options.test},
               {"validation", &split_.validation, options.validation},
               {"test", &split_.test, options.test}}};
  }

  Split by_random() {
    const uint64_t key = mix_keys(options_.seed, kSplitTag);
    for_each_row(dataset_, RowSet(dataset_.rows, true), [&](int64_t row, const RowBuffer& rows, int64_t i) {
      if (!has_targets(rows, i)) return;
      const double u = uniform(key, static_cast<uint64_t>(row));
      const size_t part = u < options_.test ? 2 : u < options_.test + options_.validation ? 1 : 0;
      parts_[part].add(row, 0);
    });
    require_all_parts();
    std::vector<std::string> texts;
    for (const Part& part : parts_)
      texts.push_back(fmt::format("{} {} rows", part.name, with_commas(part.count)));
    return finish(fmt::format("at random (seed {}): {}", options_.seed, fmt::join(texts, ", ")));
  }

  Split by_time() {
    const Column& column = time_column(dataset_, options_.time_column);
    const std::optional<TimeCuts> cuts = choose_cuts(column);
    if (!cuts) {
      fail(
          "split: \"{}\" has too few different values to cut {} rows with a target and a time into parts of "
          "{:.3g}, {:.3g} "
          "and {:.3g}; use fewer parts, split by = \"random\", or add data",
          column.name, with_commas(usable_.count()), parts_[0].share, parts_[1].share, parts_[2].share);
    }
    for_each_row(dataset_, usable_, [&](int64_t row, const RowBuffer& rows, int64_t i) {
      const int64_t time = whole_value(dataset_, rows, i, column);
      const size_t part = time < cuts->validation_from ? 0 : time < cuts->test_from ? 1 : 2;
      parts_[part].add(row, time);
    });
    require_all_parts();
    const auto text = [&](int64_t time) {
      return column.type == ColumnType::integer ? fmt::to_string(time)
             : whole_days_                      ? iso_date(time)
                                                : iso_time(time);
    };
    std::vector<std::string> texts;
    for (const Part& part : parts_) {
      if (part.count == 0) continue;
      texts.push_back(fmt::format("{} {} to {} ({} rows)", part.name, text(part.first), text(part.last),
                                  with_commas(part.count)));
    }
    return finish(fmt::format("by time (\"{}\"{}): {}", column.name, whole_days_ ? ", whole UTC days" : "",
                              fmt::join(texts, ", ")));
  }

 private:
  // Also counts the rows that are left out.
  bool has_targets(const RowBuffer& rows, int64_t row) {
    const bool has = std::none_of(targets_.begin(), targets_.end(), [&](const Column* column) {
      return is_null(dataset_, rows, row, *column);
    });
    ++(has ? with_targets_ : split_.null_targets);
    return has;
  }

  // A first pass: which rows can be used, and how many lie on each day.
  std::optional<TimeCuts> choose_cuts(const Column& column) {
    const size_t parts = 1 + (options_.validation > 0) + (options_.test > 0);
    std::map<int64_t, int64_t> rows_of_day;  // at most the 213,504 days that a timestamp can name
    for_each_row(dataset_, RowSet(dataset_.rows, true), [&](int64_t row, const RowBuffer& rows, int64_t i) {
      if (!has_targets(rows, i)) return;
      if (is_null(dataset_, rows, i, column)) {
        ++null_times_;
        return;
      }
      usable_.set(row, true);
      if (column.type == ColumnType::timestamp) ++rows_of_day[day_of(whole_value(dataset_, rows, i, column))];
    });
    whole_days_ = rows_of_day.size() >= kDaysPerPart * parts;
    if (whole_days_) return cut_days(rows_of_day, options_.validation, options_.test);
    // Few days or plain numbers: the times themselves, 8 bytes a row while this runs.
    std::vector<int64_t> times;
    times.reserve(static_cast<size_t>(usable_.count()));
    for_each_row(dataset_, usable_, [&](int64_t, const RowBuffer& rows, int64_t i) {
      times.push_back(whole_value(dataset_, rows, i, column));
    });
    return cut_times(times, options_.validation, options_.test);
  }

  void require_all_parts() const {
    for (const Part& part : parts_) {
      if (part.share <= 0 || part.count > 0) continue;
      fail(
          "split: the {} part would be empty: {:.3g} of the rows were asked for, and of {} rows {} have a "
          "target{}; "
          "use fewer parts or larger shares, or more data",
          part.name, part.share, with_commas(dataset_.rows), with_commas(with_targets_),
          null_times_ > 0 ? fmt::format(" ({} of them have no time)", with_commas(null_times_)) : "");
    }
  }

  Split finish(std::string description) {
    if (split_.null_targets > 0) {
      description += fmt::format("; left out: {} rows without a target", with_commas(split_.null_targets));
    }
    if (null_times_ > 0) {
      description += fmt::format("{} {} rows without a time",
                                 split_.null_targets > 0 ? "," : "; left out:", with_commas(null_times_));
    }
    split_.description = std::move(description);
    return std::move(split_);
  }

  const Dataset& dataset_;
  const SplitOptions& options_;
  std::vector<const Column*> targets_;
  Split split_;
  std::array<Part, 3> parts_;
  RowSet usable_;
  int64_t with_targets_ = 0;
  int64_t null_times_ = 0;
  bool whole_days_ = false;
};

}  // namespace

Split split_rows(const Dataset& dataset, const std::vector<std::string>& targets,
                 const SplitOptions& options) {
  Splitter splitter(dataset, targets, options);
  switch (options.by) {
    case SplitOptions::By::random:
      return splitter.by_random();
    case SplitOptions::By::time:
      return splitter.by_time();
    case SplitOptions::By::series:
      fail_usage("a split by series is not in this version; use by = \"random\" or \"time\"");
  }
  TROIKA_ASSERT(false, "a kind of split that isn't known");
}

}  // namespace troika

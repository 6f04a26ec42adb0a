#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <utility>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/data/source.h"
#include "troika/data/split_series.h"
#include "troika/data/split_values.h"

namespace troika {
namespace {

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
      : dataset_(dataset), options_(options), targets_(dataset, targets), usable_(dataset.rows) {
    check_shares(options);
    split_.train = split_.validation = split_.test = RowSet(dataset.rows);
    parts_ = {{{kPartNames[0], &split_.train, share_of(options, 0)},
               {kPartNames[1], &split_.validation, share_of(options, 1)},
               {kPartNames[2], &split_.test, share_of(options, 2)}}};
  }

  Split by_random() {
    for_each_row(dataset_, RowSet(dataset_.rows, true), [&](int64_t row, const RowBuffer& rows, int64_t i) {
      if (has_targets(rows, i)) parts_[random_part(options_, row)].add(row, 0);
    });
    require_all_parts();
    std::vector<std::string> texts;
    for (const Part& part : parts_)
      texts.push_back(fmt::format("{} {} rows", part.name, with_commas(part.count)));
    return finish(fmt::format("at random (seed {}): {}", options_.seed, fmt::join(texts, ", ")));
  }

  Split by_time() {
    const Column& column = time_column(dataset_, options_.time_column, "a split by time");
    const ChosenCuts chosen = choose_cuts(dataset_, column, usable_, look_at_times(column), options_);
    for_each_row(dataset_, usable_, [&](int64_t row, const RowBuffer& rows, int64_t i) {
      const int64_t time = whole_at(dataset_, rows, i, column);
      const size_t part = time < chosen.cuts.validation_from ? 0 : time < chosen.cuts.test_from ? 1 : 2;
      parts_[part].add(row, time);
    });
    require_all_parts();
    std::vector<std::string> texts;
    for (const Part& part : parts_) {
      if (part.count == 0) continue;
      const auto text = [&](int64_t time) {
        return chosen.whole_days ? iso_date(time) : time_text(column, time);
      };
      texts.push_back(fmt::format("{} {} to {} ({} rows)", part.name, text(part.first), text(part.last),
                                  with_commas(part.count)));
    }
    return finish(fmt::format("by time (\"{}\"{}): {}", column.name,
                              chosen.whole_days ? ", whole UTC days" : "", fmt::join(texts, ", ")));
  }

  Split by_series() {
    const SeriesColumns columns(dataset_, options_.series_columns);
    if (columns.empty()) {
      fail_usage(
          "a split by series needs the columns whose values tell series apart, but none is named; name them, "
          "for example series = [\"station\"], or split by = \"random\" or \"time\"");
    }
    std::vector<std::string> keys;
    std::vector<SeriesSize> series;
    std::unordered_map<std::string, size_t> number_of;
    std::string key, last_key;
    size_t last = 0;
    const auto series_at = [&](const RowBuffer& rows, int64_t i) {
      columns.read(rows, i, key);
      if (keys.empty() || key != last_key) {
        const auto [at, is_new] = number_of.try_emplace(key, keys.size());
        if (is_new) {
          keys.push_back(key);
          series.push_back({columns.hash(key, options_.seed), 0});
        }
        last = at->second;
        last_key = key;
      }
      return last;
    };
    for_each_row(dataset_, RowSet(dataset_.rows, true), [&](int64_t row, const RowBuffer& rows, int64_t i) {
      const size_t number = series_at(rows, i);
      if (!has_targets(rows, i)) return;
      usable_.set(row, true);
      ++series[number].items;
    });
    const std::vector<int> part_of = deal_series_or_fail(series, options_, columns, "rows with a target");
    for_each_row(dataset_, usable_, [&](int64_t row, const RowBuffer& rows, int64_t i) {
      parts_[static_cast<size_t>(part_of[series_at(rows, i)])].add(row, 0);
    });
    require_all_parts();
    return finish(fmt::format("by series ({}; seed {}): {}", columns.names(), options_.seed,
                              describe_series(part_of, series, keys, columns, "rows")));
  }

 private:
  // Also counts the rows that are left out.
  bool has_targets(const RowBuffer& rows, int64_t row) {
    const bool has = targets_.has_all(rows, row);
    ++(has ? with_targets_ : split_.null_targets);
    return has;
  }

  // A first pass: which rows can be used, and how many lie on each day (at most the 213,504 days that a
  // timestamp can name).
  RowsOfDay look_at_times(const Column& column) {
    RowsOfDay rows_of_day;
    for_each_row(dataset_, RowSet(dataset_.rows, true), [&](int64_t row, const RowBuffer& rows, int64_t i) {
      if (!has_targets(rows, i)) return;
      if (is_null_at(dataset_, rows, i, column)) {
        ++null_times_;
        return;
      }
      usable_.set(row, true);
      if (column.type == ColumnType::timestamp) ++rows_of_day[day_of(whole_at(dataset_, rows, i, column))];
    });
    return rows_of_day;
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
  TargetColumns targets_;
  Split split_;
  std::array<Part, 3> parts_;
  RowSet usable_;
  int64_t with_targets_ = 0;
  int64_t null_times_ = 0;
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
      return splitter.by_series();
    case SplitOptions::By::order:
      fail_usage("a split by order is of windows over series; split rows at random or by time");
  }
  TROIKA_ASSERT(false, "a kind of split that isn't known");
}

}  // namespace troika

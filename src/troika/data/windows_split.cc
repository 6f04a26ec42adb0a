#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "troika/base/error.h"
#include "troika/base/random.h"
#include "troika/base/text.h"
#include "troika/data/split_series.h"
#include "troika/data/split_values.h"
#include "troika/data/windows.h"
#include "troika/data/windows_scan.h"

namespace troika {
namespace {

// How many rows of a segment stand before each cut; by shares, below 0 or above its rows where the cut is
// elsewhere.
struct RowsBefore {
  int64_t validation = 0, test = 0;
};

class WindowSplitter {
 public:
  WindowSplitter(const Dataset& dataset, const std::vector<std::string>& targets, const SplitOptions& split,
                 const WindowOptions& windows)
      : dataset_(dataset),
        options_(split),
        windows_(windows),
        targets_(dataset, targets),
        stride_(std::min(windows.stride, dataset.rows + 1)),
        with_targets_(dataset.rows) {
    check_shares(split);
    check_windows(dataset, windows);
    split_.train = split_.validation = split_.test = RowSet(dataset.rows);
  }

  Split by_random() {
    if (windows_.stride < windows_.span()) {
      fail_usage(
          "windows of {} + {} rows that begin every {} rows overlap, so parts at random would share rows; "
          "use "
          "split by = \"time\" or \"series\", or stride = {}",
          windows_.window, windows_.horizon, windows_.stride, windows_.span());
    }
    scan({});
    deal([&](size_t, int64_t start) { return random_part(options_, start); });
    return finish(fmt::format("at random (seed {}): {}", options_.seed, describe_parts({"", "", ""})));
  }

  Split by_time() {
    if (windows_.time.empty()) {
      fail_usage(
          "a split by time of windows needs the column that the rows of a series are in order of; name it "
          "(time = \"...\"), or split by = \"series\"");
    }
    if (!options_.time_column.empty() && options_.time_column != windows_.time) {
      fail_usage("windows are in order of \"{}\" and can't be split by \"{}\"; name one column of time",
                 windows_.time, options_.time_column);
    }
    const Column& column = time_column(dataset_, windows_.time, "a split by time");
    RowsOfDay rows_of_day;
    scan([&](int64_t row, const RowBuffer& rows, int64_t i) {
      if (column.type == ColumnType::timestamp && with_targets_.contains(row))
        ++rows_of_day[day_of(whole_at(dataset_, rows, i, column))];
    });
    const ChosenCuts chosen = choose_cuts(dataset_, column, with_targets_, rows_of_day, options_);
    const std::vector<RowsBefore> before = rows_before(column, chosen.cuts);
    deal([&](size_t segment, int64_t start) { return part_in_time(segment, start, before[segment]); });
    const auto text = [&](int64_t time) {
      return chosen.whole_days ? iso_date(time) : time_text(column, time);
    };
    const TimeCuts& cuts = chosen.cuts;
    const bool has_test = options_.test > 0, has_validation = options_.validation > 0;
    const int64_t train_end = has_validation ? cuts.validation_from : cuts.test_from;
    std::array<std::string, 3> ranges;
    if (has_validation || has_test) ranges[0] = " before " + text(train_end);
    ranges[1] =
        " from " + text(cuts.validation_from) + (has_test ? " to before " + text(cuts.test_from) : "");
    ranges[2] = " from " + text(cuts.test_from);
    return finish(fmt::format("by time (\"{}\"{}): {}", column.name,
                              chosen.whole_days ? ", whole UTC days" : "", describe_parts(ranges)));
  }

  Split by_order() {
    scan({});
    const std::vector<RowsBefore> before = rows_before_shares();
    deal([&](size_t segment, int64_t start) { return part_in_time(segment, start, before[segment]); });
    const bool has_test = options_.test > 0, has_validation = options_.validation > 0;
    const auto percent = [](double share) { return fmt::format(" {:.3g} %", 100 * share); };
    return finish(fmt::format(
        "in order, of each series: {}",
        describe_parts({fmt::format(" the first{}", percent(1 - options_.validation - options_.test)),
                        has_test ? fmt::format(" the next{}", percent(options_.validation)) : " the rest",
                        has_validation || has_test ? " the rest" : ""})));
  }

  Split by_series() {
    const SeriesColumns all(dataset_, windows_.series);
    const SeriesColumns columns(dataset_,
                                options_.series_columns.empty() ? windows_.series : options_.series_columns);
    if (columns.empty()) {
      fail_usage(
          "a split by series needs the columns whose values tell series apart, but none is named; name them, "
          "for example series = [\"station\"], or split by = \"time\"");
    }
    for (const std::string& name : options_.series_columns) {
      if (std::find(windows_.series.begin(), windows_.series.end(), name) == windows_.series.end()) {
        fail_usage(
            "a split by series of windows can't go by \"{}\", which isn't among the series columns: {}", name,
            all.names());
      }
    }
    scan({});
    // Series of windows that agree in the split's columns stay together.
    std::map<std::string, size_t> number_of;
    std::vector<std::string> keys;
    std::vector<SeriesSize> groups;
    std::vector<size_t> group_of;  // per series
    for (const std::string& key : scan_.keys) {
      std::string part = columns.part_of(key, all);
      const auto [at, is_new] = number_of.try_emplace(part, groups.size());
      if (is_new) {
        groups.push_back({columns.hash(part, options_.seed), 0});
        keys.push_back(std::move(part));
      }
      group_of.push_back(at->second);
    }
    const auto group_at = [&](size_t segment) {
      return group_of[static_cast<size_t>(scan_.map.segments[segment].series)];
    };
    for_each_window([&](size_t segment, int64_t start) {
      if (targets_are_there(start)) ++groups[group_at(segment)].items;
    });
    const std::vector<int> part_of = deal_series_or_fail(groups, options_, columns, "windows");
    deal([&](size_t segment, int64_t) { return static_cast<size_t>(part_of[group_at(segment)]); });
    return finish(fmt::format("by series ({}; seed {}): {}", columns.names(), options_.seed,
                              describe_series(part_of, groups, keys, columns, "windows")));
  }

 private:
  // Finds the series, of which one has room for a window, and which rows have all targets.
  void scan(const RowVisitor& also) {
    scan_ = scan_series(dataset_, windows_, [&](int64_t row, const RowBuffer& rows, int64_t i) {
      if (targets_.has_all(rows, i)) with_targets_.set(row, true);
      if (also) also(row, rows, i);
    });
    require_windows();
  }

  int64_t windows_in(int64_t rows) const {
    return rows < windows_.span() ? 0 : (rows - windows_.span()) / stride_ + 1;
  }

  // Calls `visit(segment, first row)` for each window, in order.
  template <typename Visit>
  void for_each_window(const Visit& visit) const {
    for (size_t segment = 0; segment < scan_.map.segments.size(); ++segment) {
      const Range rows = scan_.map.segments[segment].rows;
      for (int64_t start = rows.begin; start + windows_.span() <= rows.end; start += stride_)
        visit(segment, start);
    }
  }

  bool targets_are_there(int64_t start) const {
    const int64_t first = start + windows_.first_step_ahead();
    return with_targets_.count({first, first + windows_.steps_ahead()}) == windows_.steps_ahead();
  }

  // A second pass: where the cuts lie in each segment, whose rows are in order of time.
  std::vector<RowsBefore> rows_before(const Column& column, const TimeCuts& cuts) const {
    std::vector<RowsBefore> before(scan_.map.segments.size());
    size_t segment = 0;
    for_each_row(dataset_, RowSet(dataset_.rows, true), [&](int64_t row, const RowBuffer& rows, int64_t i) {
      if (row == scan_.map.segments[segment].rows.end) ++segment;
      const int64_t time = whole_at(dataset_, rows, i, column);
      before[segment].validation += time < cuts.validation_from ? 1 : 0;
      before[segment].test += time < cuts.test_from ? 1 : 0;
    });
    return before;
  }

  // The same for cuts by shares of each series' rows.
  std::vector<RowsBefore> rows_before_shares() const {
    const std::vector<Segment>& segments = scan_.map.segments;
    std::vector<RowsBefore> before;
    for (size_t begin = 0; begin < segments.size();) {
      size_t end = begin;
      int64_t rows = 0;
      while (end < segments.size() && segments[end].series == segments[begin].series)
        rows += segments[end++].rows.size();
      const auto share = [rows](double part) -> int64_t {
        return std::llround(part * static_cast<double>(rows));
      };
      int64_t to_test = rows - share(options_.test), to_validation = to_test - share(options_.validation);
      for (; begin < end; ++begin) {
        before.push_back({to_validation, to_test});
        to_validation -= segments[begin].rows.size();
        to_test -= segments[begin].rows.size();
      }
    }
    return before;
  }

  // The part that holds all rows of the window; none if a cut lies between them.
  std::optional<size_t> part_in_time(size_t segment, int64_t start, const RowsBefore& before) const {
    const int64_t first = start - scan_.map.segments[segment].rows.begin;
    const int64_t end = first + windows_.span();
    if (end <= before.validation) return 0;
    if (first >= before.test) return 2;
    if (first >= before.validation && end <= before.test) return 1;
    return std::nullopt;
  }

  // Puts each window into the part that `part_at(segment, first row)` names, if its targets are there.
  template <typename PartAt>
  void deal(const PartAt& part_at) {
    const std::array<RowSet*, 3> parts{&split_.train, &split_.validation, &split_.test};
    for_each_window([&](size_t segment, int64_t start) {
      if (!targets_are_there(start)) {
        ++split_.null_targets;
        return;
      }
      const std::optional<size_t> part = part_at(segment, start);
      if (!part) {
        ++at_cuts_;
        return;
      }
      parts[*part]->set(start, true);
      ++counts_[*part];
    });
    for (size_t part = 0; part < parts.size(); ++part) {
      if (share_of(options_, part) <= 0 || counts_[part] > 0) continue;
      fail(
          "split: the {} part would have no window: {:.3g} was asked for, a window takes {} rows without a "
          "gap "
          "inside the part{}; use a smaller window or horizon, larger shares or fewer parts, or more data",
          kPartNames[part], share_of(options_, part), with_commas(windows_.span()), left_out());
    }
  }

  void require_windows() const {
    int64_t longest = 0;
    for (const Segment& segment : scan_.map.segments) longest = std::max(longest, segment.rows.size());
    if (longest >= windows_.span()) return;
    fail(
        "no window of {} + {} rows fits in: the most rows that a series has without a gap are {} ({} series, "
        "{} "
        "gaps{}); use a smaller window or horizon{}{}",
        windows_.window, windows_.horizon, with_commas(longest), with_commas(scan_.map.series),
        with_commas(scan_.map.gaps), repeated(), windows_.time.empty() ? "" : ", or a larger max_gap",
        scan_.map.repeated > 0 ? "; where a time stands still, rows may be of several series: name the "
                                 "columns that tell them apart"
                               : "");
  }

  std::string repeated() const {
    if (scan_.map.repeated == 0) return "";
    return fmt::format(", {} of them where the time stands still", with_commas(scan_.map.repeated));
  }

  std::string describe_parts(const std::array<std::string, 3>& ranges) const {
    std::vector<std::string> texts;
    for (size_t part = 0; part < counts_.size(); ++part) {
      if (counts_[part] == 0) continue;
      texts.push_back(
          fmt::format("{}{} ({} windows)", kPartNames[part], ranges[part], with_commas(counts_[part])));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  // Windows that there would be if every series were one segment, but for those that there are.
  int64_t lost_at_gaps() const {
    const std::vector<Segment>& segments = scan_.map.segments;
    int64_t lost = 0;
    for (size_t begin = 0; begin < segments.size();) {
      size_t end = begin;
      int64_t found = 0;
      for (; end < segments.size() && segments[end].series == segments[begin].series; ++end)
        found += windows_in(segments[end].rows.size());
      const int64_t whole = windows_in(segments[end - 1].rows.end - segments[begin].rows.begin);
      // With a stride, segments that each begin anew can hold more.
      lost += std::max<int64_t>(0, whole - found);
      begin = end;
    }
    return lost;
  }

  std::string left_out() const {
    std::vector<std::string> texts;
    const auto add = [&](int64_t count, const char* why) {
      if (count > 0) texts.push_back(fmt::format("{} {}", with_commas(count), why));
    };
    add(at_cuts_, "across a cut");
    add(lost_at_gaps(), "across a gap");
    add(split_.null_targets, "whose target is null");
    return texts.empty() ? "" : fmt::format("; windows left out: {}", fmt::join(texts, ", "));
  }

  std::string largest_step() const {
    const Column& column = dataset_.column(windows_.time);
    const std::string size = column.type == ColumnType::timestamp
                                 ? fmt::format("{:g} s", scan_.largest_step / 1e9)
                                 : fmt::format("{:g}", scan_.largest_step);
    const char* const why = windows_.max_gap > 0 ? "" : ", 1.5 x the median step";
    return fmt::format(" (steps above {}{}{})", size, why, repeated());
  }

  Split finish(std::string description) {
    description += fmt::format(
        "; windows of {} + {} rows{}; {} series{}{}", windows_.window, windows_.horizon,
        windows_.stride == 1 ? "" : fmt::format(", every {} rows", windows_.stride),
        with_commas(scan_.map.series),
        windows_.time.empty() ? "" : fmt::format(", {} gaps{}", with_commas(scan_.map.gaps), largest_step()),
        left_out());
    split_.median_step = scan_.map.median_step;
    split_.description = std::move(description);
    return std::move(split_);
  }

  const Dataset& dataset_;
  const SplitOptions& options_;
  const WindowOptions& windows_;
  TargetColumns targets_;
  int64_t stride_;
  RowSet with_targets_;
  SeriesScan scan_;
  Split split_;
  std::array<int64_t, 3> counts_{};
  int64_t at_cuts_ = 0;
};

}  // namespace

Split split_windows(const Dataset& dataset, const std::vector<std::string>& targets,
                    const SplitOptions& split, const WindowOptions& windows) {
  WindowSplitter splitter(dataset, targets, split, windows);
  switch (split.by) {
    case SplitOptions::By::random:
      return splitter.by_random();
    case SplitOptions::By::time:
      return splitter.by_time();
    case SplitOptions::By::series:
      return splitter.by_series();
    case SplitOptions::By::order:
      return splitter.by_order();
  }
  TROIKA_ASSERT(false, "a kind of split that isn't known");
}

}  // namespace troika

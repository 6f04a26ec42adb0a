#include "troika/data/windows.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/data/split_values.h"
#include "troika/data/windows_scan.h"

namespace troika {
namespace {

constexpr double kGapInMedians = 1.5;
constexpr double kNanosecondsPerSecond = 1e9;
// Steps that may be gaps, held until the median is known; if there are more, the rows are read a second time.
constexpr size_t kMostDoubtful = size_t{1} << 20;
constexpr size_t kNamedCandidates = 5;

// Where a segment begins: at a new series, a time that stands still, or a step that may be a gap.
struct Break {
  enum class Why : uint8_t { series, repeated, step };
  int64_t row;
  uint64_t step;
  Why why;
};

class SeriesScanner {
 public:
  SeriesScanner(const Dataset& dataset, const WindowOptions& options)
      : dataset_(dataset),
        options_(options),
        columns_(dataset, options.series),
        time_(options.time.empty() ? nullptr : &time_column(dataset, options.time, "a series")) {
    if (!(options.max_gap >= 0)) {  // NaN, too
      fail_usage("series: max_gap = {} must be a number of 0 or more; 0 stands for 1.5 x the median step",
                 options.max_gap);
    }
    if (time_ != nullptr &&
        std::find(options.series.begin(), options.series.end(), options.time) != options.series.end()) {
      fail_usage(
          "\"{}\" can't be the time column and tell series apart: each row would be a series of its own; "
          "leave it out of the series columns",
          options.time);
    }
  }

  SeriesScan scan(const RowVisitor& also) {
    const double unit = time_ != nullptr && time_->type == ColumnType::timestamp ? kNanosecondsPerSecond : 1;
    const bool given = options_.max_gap > 0;
    if (given) largest_known_ = options_.max_gap * unit;
    pass(&also, given);
    const double median = steps_.median();
    SeriesScan found;
    found.largest_step = given ? options_.max_gap * unit : kGapInMedians * median;
    found.map.median_step = median / unit;
    // Only steps above the first one were kept: enough if none of the others is a gap.
    if (!given && (too_many_doubtful_ || found.largest_step < largest_known_)) {
      largest_known_ = found.largest_step;
      pass(nullptr, true);
    }
    fill(found);
    return found;
  }

 private:
  void pass(const RowVisitor* also, bool is_limit_known) {
    breaks_.clear();
    keys_.clear();
    number_of_.clear();
    first_rows_.clear();
    last_times_.clear();
    steps_ = {};
    doubtful_ = 0;
    too_many_doubtful_ = false;
    is_limit_known_ = is_limit_known;
    most_doubtful_ = is_limit_known ? std::numeric_limits<size_t>::max() : kMostDoubtful;
    for_each_row(dataset_, RowSet(dataset_.rows, true), [&](int64_t row, const RowBuffer& rows, int64_t i) {
      visit(row, rows, i);
      if (also != nullptr) (*also)(row, rows, i);
    });
  }

  void visit(int64_t row, const RowBuffer& rows, int64_t i) {
    columns_.read(rows, i, key_);
    const bool begins = row == 0 || key_ != keys_.back();
    const int64_t time = time_ == nullptr ? 0 : whole_or_null(rows, i);
    if (time_ != nullptr && time == kNullInt) fail_without_time(row);
    if (begins) {
      begin_series(row, time);
    } else if (time_ != nullptr) {
      follow(row, time);
    }
    last_times_.back() = time;
  }

  int64_t whole_or_null(const RowBuffer& rows, int64_t i) const {
    return is_null_at(dataset_, rows, i, *time_) ? kNullInt : whole_at(dataset_, rows, i, *time_);
  }

  void begin_series(int64_t row, int64_t time) {
    const auto [known, is_new] = number_of_.try_emplace(key_, keys_.size());
    if (!is_new) fail_comes_back(row, time, known->second);
    keys_.push_back(key_);
    first_rows_.push_back(row);
    last_times_.push_back(time);
    breaks_.push_back({row, 0, Break::Why::series});
  }

  void follow(int64_t row, int64_t time) {
    const int64_t before = last_times_.back();
    if (time < before) fail_backwards(row, time);
    if (time == before) {
      breaks_.push_back({row, 0, Break::Why::repeated});
      return;
    }
    const uint64_t step = static_cast<uint64_t>(time) - static_cast<uint64_t>(before);
    steps_.add(step);
    if (!is_limit_known_) {
      is_limit_known_ = true;
      largest_known_ = static_cast<double>(step);
    }
    if (static_cast<double>(step) <= largest_known_) return;
    if (doubtful_ == most_doubtful_) {
      too_many_doubtful_ = true;
      return;
    }
    ++doubtful_;
    breaks_.push_back({row, step, Break::Why::step});
  }

  void fill(SeriesScan& found) {
    SeriesMap& map = found.map;
    map.series = 0;
    const auto close = [&](int64_t end) {
      if (!map.segments.empty()) map.segments.back().rows.end = end;
    };
    for (const Break& at : breaks_) {
      if (at.why == Break::Why::step && static_cast<double>(at.step) <= found.largest_step) continue;
      close(at.row);
      if (at.why == Break::Why::series) {
        ++map.series;
      } else {
        ++map.gaps;
      }
      if (at.why == Break::Why::repeated) ++map.repeated;
      map.segments.push_back({{at.row, at.row}, map.series - 1});
    }
    close(dataset_.rows);
    map.segments.shrink_to_fit();
    found.keys = std::move(keys_);
  }

  // "row 17 (counted from 0; probably line 19 of flights.csv)". Lines are only a guess: a quoted field may
  // hold several.
  std::string place(int64_t row) const {
    const bool one_file =
        !dataset_.source_path.empty() && dataset_.source_path.find(", ") == std::string::npos;
    if (!one_file || dataset_.rejected_rows > 0) return fmt::format("row {} (counted from 0)", row);
    return fmt::format("row {} (counted from 0; probably line {} of {})", row, row + 2,
                       Path(dataset_.source_path).filename().string());
  }

  std::string sort_advice() const {
    std::string by = columns_.names();
    if (time_ == nullptr) {
      return fmt::format(
          "sort the CSV so that rows with the same {} lie together, in order of time, and pack it again", by);
    }
    if (!by.empty()) by += ", ";
    return fmt::format("sort the CSV by {}{} and pack it again", by, time_->name);
  }

  // Without series columns a time that goes back often means that several series follow each other.
  std::string series_advice() const {
    if (!columns_.empty()) return "";
    std::vector<std::string> candidates;
    for (const Column& column : dataset_.columns) {
      if (column.type == ColumnType::category && candidates.size() < kNamedCandidates)
        candidates.push_back(column.name);
    }
    return fmt::format("; or, if these are rows of several series, name the columns that tell them apart{}",
                       candidates.empty() ? "" : fmt::format(" (perhaps {})", fmt::join(candidates, ", ")));
  }

  std::string of_series(const std::string& key) const {
    return columns_.empty() ? "" : fmt::format(" of series {}", columns_.text(key));
  }

  [[noreturn]] void fail_without_time(int64_t row) const {
    fail(
        "windows over series: {}: {}{} has no \"{}\" (it is null), so it has no place in its series; give it "
        "a time, or take it out of the CSV, and pack it again",
        dataset_.folder.string(), place(row), of_series(key_), time_->name);
  }

  [[noreturn]] void fail_backwards(int64_t row, int64_t time) const {
    fail(
        "windows over series: {}: rows of a series must be in order of time, but {}{} has {} {}, and the row "
        "before it {}; {}{}",
        dataset_.folder.string(), place(row), of_series(key_), time_->name, time_text(*time_, time),
        time_text(*time_, last_times_.back()), sort_advice(), series_advice());
  }

  [[noreturn]] void fail_comes_back(int64_t row, int64_t time, size_t series) const {
    const auto times = time_ == nullptr
                           ? std::pair<std::string, std::string>()
                           : std::pair(fmt::format(" with {} {}", time_->name, time_text(*time_, time)),
                                       fmt::format(" with {}", time_text(*time_, last_times_[series])));
    fail(
        "windows over series: {}: rows of a series must lie together, but {}{} comes{} after rows of other "
        "series, and the last one of its series was row {}{}; {}",
        dataset_.folder.string(), place(row), of_series(key_), times.first, first_rows_[series + 1] - 1,
        times.second, sort_advice());
  }

  const Dataset& dataset_;
  const WindowOptions& options_;
  SeriesColumns columns_;
  const Column* time_;

  std::string key_;  // of the row at hand
  std::vector<std::string> keys_;
  std::unordered_map<std::string, size_t> number_of_;
  std::vector<int64_t> first_rows_, last_times_;  // per series
  std::vector<Break> breaks_;
  StepHistogram steps_;
  double largest_known_ = 0;  // steps up to it are no gaps, as far as is known
  bool is_limit_known_ = false;
  size_t doubtful_ = 0, most_doubtful_ = 0;
  bool too_many_doubtful_ = false;
};

}  // namespace

void check_windows(const Dataset& dataset, const WindowOptions& options) {
  if (options.window < 1 || options.horizon < 0 || options.stride < 1) {
    fail_usage(
        "windows of window = {}, horizon = {}, stride = {}: a window has at least 1 row, a horizon at least "
        "0 "
        "and a stride at least 1",
        options.window, options.horizon, options.stride);
  }
  if (options.window > dataset.rows || options.horizon > dataset.rows - options.window) {
    fail("windows of {} + {} rows: {} has only {} rows; use a smaller window or horizon, or more data",
         options.window, options.horizon, dataset.folder.string(), with_commas(dataset.rows));
  }
}

SeriesScan scan_series(const Dataset& dataset, const WindowOptions& options, const RowVisitor& also) {
  return SeriesScanner(dataset, options).scan(also);
}

SeriesMap find_series(const Dataset& dataset, const WindowOptions& options) {
  return scan_series(dataset, options, [](int64_t, const RowBuffer&, int64_t) {}).map;
}

RowSet covered_rows(const RowSet& starts, int64_t span) {
  TROIKA_ASSERT(span >= 1, fmt::format("samples of {} rows", span));
  RowSet covered(starts.universe());
  int64_t until = 0;
  for (int64_t row = 0; row < starts.universe(); ++row) {
    if (starts.contains(row)) {
      TROIKA_ASSERT(span <= starts.universe() - row,
                    fmt::format("a sample of {} rows begins at row {} of {}", span, row, starts.universe()));
      until = row + span;
    }
    if (row < until) covered.set(row, true);
  }
  return covered;
}

}  // namespace troika

#include "troika/train/predict.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <optional>

#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/progress.h"
#include "troika/base/text.h"
#include "troika/data/split_time.h"
#include "troika/train/predict_model.h"
#include "troika/train/scan_samples.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

constexpr size_t kMostClassColumns = 32;
constexpr size_t kFlushBytes = 1 << 20;

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    out += c;
    if (c == '"') out += '"';
  }
  return out + '"';
}

/// The text that the cell had in the CSV, or one that means the same; "" for null.
std::string cell_text(const Column& column, const Dataset& dataset, const RowBuffer& rows, int64_t row) {
  if (column.storage == Storage::ints) {
    const int64_t value = rows.ints[static_cast<size_t>(row * dataset.int_columns + column.index)];
    if (value == std::numeric_limits<int64_t>::min()) return "";
    return column.type == ColumnType::timestamp ? iso_time(value) : std::to_string(value);
  }
  const float value = rows.floats[static_cast<size_t>(row * dataset.float_columns + column.index)];
  if (std::isnan(value)) return "";
  if (column.type == ColumnType::category) return csv_cell(column.categories.at(static_cast<size_t>(value)));
  if (column.type == ColumnType::boolean) return value != 0 ? "true" : "false";
  return fmt::format("{}", value);
}

/// A file that appears under its name when it is complete.
class Output {
 public:
  Output(const Path& path, bool overwrite) : path_(path), to_standard_output_(path == "-") {
    if (to_standard_output_) return;
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) fail_usage("-o {}: it is a folder", path.string());
    if (!overwrite && std::filesystem::exists(path, ignored)) {
      fail_usage("{} is there already; replace it with --overwrite, or choose another -o", path.string());
    }
    temporary_ = path.string() + fmt::format(".{}.tmp", ::getpid());
    file_ = open_to_write(temporary_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  void add(const std::string& text) {
    buffer_ += text;
    if (buffer_.size() >= kFlushBytes) flush();
  }

  void commit() {
    flush();
    if (to_standard_output_) return;
    sync_file(file_, temporary_);
    std::filesystem::rename(temporary_, path_);
    temporary_.clear();
  }

 private:
  void flush() {
    if (to_standard_output_) {
      if (std::fwrite(buffer_.data(), 1, buffer_.size(), stdout) != buffer_.size() ||
          std::fflush(stdout) != 0) {
        fail("can't write the output: {}", system_message(errno));
      }
    } else {
      write_all(file_, std::as_bytes(std::span(buffer_)), temporary_);
    }
    buffer_.clear();
  }

  Path path_, temporary_;
  bool to_standard_output_;
  FileHandle file_;
  std::string buffer_;
};

/// What stands in front of a prediction: which sample it is of.
class SampleColumns {
 public:
  SampleColumns(const Dataset& dataset, const WindowOptions& windows, const std::string& time)
      : dataset_(dataset) {
    for (const std::string& name : windows.series) columns_.push_back(&dataset.column(name));
    if (!time.empty() && std::ranges::count(windows.series, time) == 0)
      columns_.push_back(&dataset.column(time));
  }
  void add_names(std::vector<std::string>& names) const {
    names.emplace_back("row");
    for (const Column* column : columns_) names.push_back(column->name);
  }
  std::string text(int64_t row_number, const RowBuffer& rows, int64_t row) const {
    std::string out = std::to_string(row_number);
    for (const Column* column : columns_) out += "," + cell_text(*column, dataset_, rows, row);
    return out;
  }

 private:
  const Dataset& dataset_;
  std::vector<const Column*> columns_;
};

void add_prediction_names(const FeaturePlan& plan, std::vector<std::string>& names) {
  if (plan.kind == TargetKind::number) {
    for (int64_t step = 1; step <= plan.windows.steps_ahead(); ++step) {
      for (const TargetColumn& target : plan.targets) {
        names.push_back(plan.windows.steps_ahead() == 1 ? target.column
                                                        : fmt::format("{}+{}", target.column, step));
      }
    }
    return;
  }
  const TargetColumn& target = plan.targets[0];
  names.push_back(target.column);
  if (target.classes.size() > kMostClassColumns) {
    names.push_back(target.column + ".p");
  } else {
    for (const std::string& name : target.classes) names.push_back(target.column + ".p." + name);
  }
}

std::string prediction_text(const FeaturePlan& plan, const double* values, int64_t width) {
  std::string out;
  if (plan.kind == TargetKind::number) {
    for (int64_t i = 0; i < width; ++i) {
      const TargetColumn& target = plan.targets[static_cast<size_t>(i) % plan.targets.size()];
      out += fmt::format(",{:.7g}", values[i] * target.deviation + target.mean);
    }
    return out;
  }
  const std::vector<std::string>& classes = plan.targets[0].classes;
  const auto likeliest = static_cast<size_t>(std::max_element(values, values + width) - values);
  out += "," + csv_cell(classes[likeliest]);
  if (classes.size() > kMostClassColumns) return out + fmt::format(",{:.6g}", values[likeliest]);
  for (int64_t i = 0; i < width; ++i) out += fmt::format(",{:.6g}", values[i]);
  return out;
}

/// The first rows of what is to be predicted, and how many rows each needs.
struct Samples {
  RowSet starts;
  int64_t span = 1;
};

/// Windows whose last one in a segment ends with it, so that the newest rows are predicted from.
Samples all_samples(const Dataset& dataset, const WindowOptions& windows) {
  if (!windows.any()) return {RowSet(dataset.rows, true), 1};
  Samples samples{RowSet(dataset.rows), windows.window};
  for (const Segment& segment : find_series(dataset, windows).segments) {
    for (int64_t start = segment.rows.end - windows.window; start >= segment.rows.begin;
         start -= windows.stride) {
      samples.starts.set(start, true);
    }
  }
  return samples;
}

Samples samples_of_part(const PredictModel& model, const Dataset& dataset, const std::string& part) {
  if (part == "all") return all_samples(dataset, model.plan.windows);
  Split split = split_samples(dataset, model.recipe);
  RowSet& starts = part == "train" ? split.train : part == "validation" ? split.validation : split.test;
  return {std::move(starts), model.plan.windows.span()};
}

class Predictor {
 public:
  Predictor(const PredictOptions& options, const Dataset& dataset, const PredictModel& model,
            const Samples& samples)
      : options_(options),
        dataset_(dataset),
        model_(model),
        samples_(samples),
        sample_columns_(dataset, model.plan.windows, model.recipe.data.time) {
    sample_columns_.add_names(report_.columns);
    add_prediction_names(model.plan, report_.columns);
  }

  PredictReport run() {
    const InterruptGuard guard;
    const auto begin = Clock::now();
    Progress progress(options_.quiet);
    Output output(options_.output, options_.overwrite);
    std::string header;
    for (const std::string& name : report_.columns) header += (header.empty() ? "" : ",") + csv_cell(name);
    output.add(header + "\n");
    const int64_t total = samples_.starts.count();
    scan_samples(dataset_, samples_.starts, samples_.span, [&](const RowBuffer& rows) {
      if (interrupted()) fail("interrupted; nothing was written to {}", options_.output.string());
      add(rows, output);
      const double rate = static_cast<double>(report_.predictions) / seconds_since(begin);
      progress.update(fmt::format("predicting  {:.0f} samples/s", rate),
                      static_cast<double>(report_.predictions), static_cast<double>(total));
    });
    output.commit();
    report_.output = options_.output;
    report_.weights = model_.weights;
    report_.seconds = seconds_since(begin);
    report_.samples_per_s = static_cast<double>(report_.predictions) / report_.seconds;
    return std::move(report_);
  }

 private:
  void add(const RowBuffer& rows, Output& output) {
    const at::Tensor predicted = model_.predict(dataset_, rows, samples_.span);
    const int64_t width = predicted.size(1);
    const auto* values = predicted.const_data_ptr<double>();
    const int64_t last =
        std::max<int64_t>(model_.plan.windows.window, 1) - 1;  // of a sample's rows that the model sees
    std::string text;
    for (int64_t i = 0; i < predicted.size(0); ++i) {
      while (!samples_.starts.contains(next_)) ++next_;
      text += sample_columns_.text(next_ + last, rows, i * samples_.span + last);
      text += prediction_text(model_.plan, values + i * width, width) + "\n";
      ++next_;
    }
    output.add(text);
    report_.predictions += predicted.size(0);
  }

  const PredictOptions& options_;
  const Dataset& dataset_;
  const PredictModel& model_;
  const Samples& samples_;
  SampleColumns sample_columns_;
  PredictReport report_;
  int64_t next_ = 0;  // the row from which to look for the next sample
};

}  // namespace

PredictReport predict(const PredictOptions& options) {
  at::set_num_threads(usable_cores());
  const Dataset dataset = open_dataset(options.data);
  const PredictModel model = open_run(options.run_dir, dataset);
  const Samples samples = samples_of_part(model, dataset, options.part);
  if (samples.starts.count() == 0) {
    fail("{} has no {} to predict in part \"{}\"{}", options.data.string(),
         model.plan.windows.any() ? "window" : "row", options.part,
         model.plan.windows.any()
             ? fmt::format(": no series has {} rows in a row without a gap", model.plan.windows.window)
             : "");
  }
  return Predictor(options, dataset, model, samples).run();
}

}  // namespace troika

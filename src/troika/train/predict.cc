#include "troika/train/predict.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/progress.h"
#include "troika/base/text.h"
#include "troika/data/cell_text.h"
#include "troika/train/predict_file.h"
#include "troika/train/predict_model.h"
#include "troika/train/scan_samples.h"
#include "troika/train/workload.h"

namespace troika {
namespace {

constexpr size_t kMostClassColumns = 32;
constexpr int kLeastDigits = 8, kMostDigits = 17;

/// What stands in front of a prediction: which sample it is of.
class SampleColumns {
 public:
  SampleColumns(const Dataset& dataset, const WindowOptions& windows, const std::string& time)
      : dataset_(dataset) {
    for (const std::string& name : windows.series) columns_.push_back(&dataset.column(name));
    if (time.empty() || std::ranges::count(windows.series, time) > 0) return;
    // Rows need no time to be predicted, so new ones may come without it.
    if (windows.any() || std::ranges::count(dataset.columns, time, &Column::name) > 0) {
      columns_.push_back(&dataset.column(time));
    }
  }
  void add_names(std::vector<std::string>& names) const {
    names.emplace_back("row");
    for (const Column* column : columns_) names.push_back(column->name);
  }
  std::string text(int64_t row_number, const RowBuffer& rows, int64_t row) const {
    std::string out = std::to_string(row_number);
    for (const Column* column : columns_) out += "," + csv_cell(cell_text(dataset_, rows, row, *column));
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

/// With so many digits that eight of the deviation are seen, be the mean as large as it may.
std::string number_text(double standardised, const TargetColumn& target) {
  const double value = standardised * target.deviation + target.mean;
  const double deviations = std::abs(value) / target.deviation;
  const int more = deviations > 1 ? static_cast<int>(std::min(std::log10(deviations), 100.0)) : 0;
  return fmt::format("{:.{}g}", value, std::min(kLeastDigits + more, kMostDigits));
}

std::string prediction_text(const FeaturePlan& plan, const double* values, int64_t width) {
  std::string out;
  if (plan.kind == TargetKind::number) {
    for (int64_t i = 0; i < width; ++i) {
      out += "," + number_text(values[i], plan.targets[static_cast<size_t>(i) % plan.targets.size()]);
    }
    return out;
  }
  const std::vector<std::string>& classes = plan.targets[0].classes;
  const auto likeliest = static_cast<size_t>(std::max_element(values, values + width) - values);
  out += "," + csv_cell(classes[likeliest]);
  if (classes.size() > kMostClassColumns) return out + fmt::format(",{:.8g}", values[likeliest]);
  for (int64_t i = 0; i < width; ++i) out += fmt::format(",{:.8g}", values[i]);
  return out;
}

/// Inputs that new rows bring no value for at all: the model takes the mean, which nobody may notice.
std::vector<std::string> empty_inputs(const FeaturePlan& plan, const Dataset& dataset) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (dataset.column(name).nulls == dataset.rows && std::ranges::count(names, name) == 0)
      names.push_back(name);
  };
  for (const FloatInput& input : plan.floats) add(input.column);
  for (const CategoryInput& input : plan.categories) add(input.column);
  return names;
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
    PredictionFile output(options_.output, options_.overwrite);
    if (const std::vector<std::string> empty = empty_inputs(model_.plan, dataset_); !empty.empty()) {
      progress.line(
          fmt::format("note: no row of {} has a value in {}, which the model reads; it is taken as null",
                      options_.data.string(), fmt::join(empty, ", ")));
    }
    std::string header;
    for (const std::string& name : report_.columns) header += (header.empty() ? "" : ",") + csv_cell(name);
    output.add(header + "\n");
    const auto total = static_cast<double>(samples_.starts.count());
    scan_samples(dataset_, samples_.starts, samples_.span, [&](const RowBuffer& rows) {
      // The rows are few megabytes, what the layers make of them may be a thousand times as much.
      const Tensors inputs = model_.inputs(dataset_, rows, samples_.span);
      const int64_t samples = samples_in(model_.plan, rows, samples_.span);
      for (int64_t at = 0; at < samples; at += model_.chunk) {
        if (interrupted()) stop();
        add(rows, inputs, {at, std::min(at + model_.chunk, samples)}, output);
        const auto done = static_cast<double>(report_.predictions);
        progress.update(fmt::format("predicting  {:.0f} samples/s", done / seconds_since(begin)), done,
                        total);
      }
    });
    output.commit();
    report_.output = options_.output;
    report_.weights = model_.weights;
    report_.seconds = seconds_since(begin);
    report_.samples_per_s = static_cast<double>(report_.predictions) / report_.seconds;
    return std::move(report_);
  }

 private:
  [[noreturn]] void stop() const {
    if (options_.output == "-") fail("interrupted: the predictions end after {} lines", report_.predictions);
    fail("interrupted: nothing was written to {}", options_.output.string());
  }

  /// Samples `which` of `rows`.
  void add(const RowBuffer& rows, const Tensors& inputs, Range which, PredictionFile& output) {
    Tensors some;
    for (const at::Tensor& input : inputs) some.push_back(input.narrow(0, which.begin, which.size()));
    const at::Tensor predicted = model_.predict(some);
    const int64_t width = predicted.size(1);
    const auto* values = predicted.const_data_ptr<double>();
    const int64_t last =
        std::max<int64_t>(model_.plan.windows.window, 1) - 1;  // of a sample's rows that the model sees
    std::string text;
    for (int64_t i = which.begin; i < which.end; ++i, values += width, ++next_) {
      while (!samples_.starts.contains(next_)) ++next_;
      if (!std::all_of(values, values + width, [](double value) { return std::isfinite(value); })) {
        fail(
            "{}: the prediction for row {} is not a finite number; look for a value in it{} that is far from "
            "those of the training rows, and leave it out (null)",
            options_.data.string(), next_ + last,
            model_.plan.windows.any() ? ", or in the rows of its window," : "");
      }
      text += sample_columns_.text(next_ + last, rows, i * samples_.span + last);
      text += prediction_text(model_.plan, values, width) + "\n";
    }
    output.add(text);
    report_.predictions += which.size();
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
    const bool windows = model.plan.windows.any();
    if (options.part != "all") {
      fail("the run's split of {} keeps no {} for {} (data.split.{}); choose another --part",
           options.data.string(), windows ? "window" : "row", options.part, options.part);
    }
    fail("{} has no {} to predict{}", options.data.string(), windows ? "window" : "row",
         windows ? fmt::format(": no series has {} rows in a row without a gap of time",
                               model.plan.windows.window)
                 : "");
  }
  return Predictor(options, dataset, model, samples).run();
}

}  // namespace troika

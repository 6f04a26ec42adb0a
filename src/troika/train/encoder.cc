#include "troika/train/encoder.h"

#include <cmath>

#include "troika/base/error.h"
#include "troika/data/split_values.h"
#include "troika/train/encode_rows.h"

namespace troika {
namespace {

/// A value of a row; a null is NaN, a timestamp in seconds.
double value_at(const Dataset& dataset, const RowBuffer& rows, int64_t row, Storage storage, int index,
                bool timestamp) {
  const double value = number_at(dataset, rows, row, storage, index);
  return timestamp ? value * 1e-9 : value;
}

/// Which rows of a buffer the model sees: `count` times `rows` consecutive ones, `stride` rows apart.
struct SeenRows {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t stride = 0;
};

SeenRows seen_rows(const FeaturePlan& plan, const RowBuffer& buffer, int64_t span) {
  if (!plan.windows.any()) return {1, buffer.rows, buffer.rows};
  return {samples_in(plan, buffer, span), plan.windows.window, span > 0 ? span : plan.windows.span()};
}

/// A plan's float inputs, sorted by how they are best made.
class FloatEncoder {
 public:
  FloatEncoder(const FeaturePlan& plan, const Dataset& dataset)
      : dataset_(dataset), width_(static_cast<int64_t>(plan.floats.size())) {
    mean_.resize(plan.floats.size());
    scale_.assign(plan.floats.size(), 1.0);
    for (size_t i = 0; i < plan.floats.size(); ++i) add(plan.floats[i], static_cast<int>(i));
  }

  /// Rows [first, first + rows) of the buffer.
  void encode(const RowBuffer& buffer, int64_t first, int64_t rows, float* out) const {
    const float* const floats = buffer.floats.data() + first * dataset_.float_columns;
    for (const internal::ColumnRun& run : runs_) {
      internal::standardise_rows(run, mean_.data(), scale_.data(), rows, floats, dataset_.float_columns, out,
                                 width_);
    }
    for (const internal::ColumnRun& run : masks_) {
      internal::mask_rows(run, rows, floats, dataset_.float_columns, out, width_);
    }
    const int64_t* const ints = buffer.ints.data() + first * dataset_.int_columns;
    for (const internal::ClockInputs& clock : clocks_) {
      internal::clock_rows(clock, rows, ints, dataset_.int_columns, out, width_);
    }
    for (const auto& [input, to] : others_) {
      const double mean = mean_[static_cast<size_t>(to)], scale = scale_[static_cast<size_t>(to)];
      const bool mask = input->encoding == Encoding::mask;
      for (int64_t row = 0; row < rows; ++row) {
        const double value =
            value_at(dataset_, buffer, first + row, input->storage, input->index, input->timestamp);
        const bool null = std::isnan(value);
        out[row * width_ + to] = mask   ? static_cast<float>(null)
                                 : null ? 0.0F
                                        : static_cast<float>((value - mean) * scale);
      }
    }
  }

 private:
  void add(const FloatInput& input, int to) {
    // A timestamp's angles are computed once for all its inputs.
    const auto clock = [&](int internal::ClockInputs::*place) {
      for (internal::ClockInputs& each : clocks_) {
        if (each.from == input.index && each.*place < 0) {
          each.*place = to;
          return;
        }
      }
      clocks_.push_back({input.index, -1, -1, -1, -1});
      clocks_.back().*place = to;
    };
    switch (input.encoding) {
      case Encoding::standardised:
        mean_[static_cast<size_t>(to)] = input.mean;
        scale_[static_cast<size_t>(to)] = 1 / input.deviation;
        [[fallthrough]];
      case Encoding::boolean:
        return add_column(runs_, input, to);
      case Encoding::mask:
        return add_column(masks_, input, to);
      case Encoding::sin_day:
        return clock(&internal::ClockInputs::sin_day);
      case Encoding::cos_day:
        return clock(&internal::ClockInputs::cos_day);
      case Encoding::sin_year:
        return clock(&internal::ClockInputs::sin_year);
      case Encoding::cos_year:
        return clock(&internal::ClockInputs::cos_year);
    }
  }

  /// To the run that it continues, if there is one.
  void add_column(std::vector<internal::ColumnRun>& runs, const FloatInput& input, int to) {
    if (input.storage != Storage::floats) {
      others_.emplace_back(&input, to);
    } else if (!runs.empty() && runs.back().from + runs.back().count == input.index &&
               runs.back().to + runs.back().count == to) {
      ++runs.back().count;
    } else {
      runs.push_back({input.index, to, 1});
    }
  }

  const Dataset& dataset_;
  int64_t width_;
  std::vector<double> mean_, scale_;  // of each input
  std::vector<internal::ColumnRun> runs_, masks_;
  std::vector<internal::ClockInputs> clocks_;
  std::vector<std::pair<const FloatInput*, int>> others_;  // and where they go
};

void encode_categories(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& buffer,
                       int64_t first, int64_t rows, int64_t* out) {
  const auto width = static_cast<int64_t>(plan.categories.size());
  for (int64_t i = 0; i < width; ++i) {
    const CategoryInput& input = plan.categories[static_cast<size_t>(i)];
    const float* const codes = buffer.floats.data() + first * dataset.float_columns + input.index;
    for (int64_t row = 0; row < rows; ++row) {
      const float code = codes[row * dataset.float_columns];
      const int64_t entry = std::isnan(code) ? 0 : static_cast<int64_t>(code) + 1;
      out[row * width + i] = entry < input.values ? entry : 0;
    }
  }
}

/// Calls use(sample, place among the sample's outputs, value) for every value to predict.
template <typename Use>
void for_targets(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, const Use& use) {
  const int64_t samples = samples_in(plan, rows), count = static_cast<int64_t>(plan.targets.size());
  for (int64_t i = 0; i < count; ++i) {
    const TargetColumn& target = plan.targets[static_cast<size_t>(i)];
    TROIKA_ASSERT(target.index >= 0, target.column + " is not in the dataset");
    for (int64_t sample = 0; sample < samples; ++sample) {
      const int64_t first = sample * plan.windows.span() + plan.first_answer();
      for (int64_t step = 0; step < plan.answers(); ++step) {
        const double value = value_at(dataset, rows, first + step, target.storage, target.index, false);
        if (std::isnan(value)) {
          fail(
              "target {} is null in a row that was chosen for training or evaluation; run `troika data "
              "check` "
              "on the dataset",
              target.column);
        }
        use(sample, step * count + i, value);
      }
    }
  }
}

}  // namespace

const char* name_of(Encoding encoding) {
  switch (encoding) {
    case Encoding::standardised:
      return "standardised";
    case Encoding::boolean:
      return "boolean";
    case Encoding::mask:
      return "mask";
    case Encoding::sin_day:
      return "sin_day";
    case Encoding::cos_day:
      return "cos_day";
    case Encoding::sin_year:
      return "sin_year";
    case Encoding::cos_year:
      return "cos_year";
  }
  return "";
}

int64_t samples_in(const FeaturePlan& plan, const RowBuffer& rows, int64_t span) {
  const int64_t each = span > 0 ? span : plan.windows.span();
  TROIKA_ASSERT(
      rows.rows % each == 0 && each >= plan.windows.window,
      fmt::format("{} rows in samples of {}, with windows of {}", rows.rows, each, plan.windows.window));
  return rows.rows / each;
}

void encode_inputs(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, float* floats,
                   int64_t* categories, int64_t span) {
  const SeenRows seen = seen_rows(plan, rows, span);
  const FloatEncoder encoder(plan, dataset);
  const auto width = static_cast<int64_t>(plan.floats.size());
  const auto count = static_cast<int64_t>(plan.categories.size());
  for (int64_t i = 0; i < seen.count; ++i) {
    if (width > 0) encoder.encode(rows, i * seen.stride, seen.rows, floats + i * seen.rows * width);
    if (count > 0) {
      encode_categories(plan, dataset, rows, i * seen.stride, seen.rows, categories + i * seen.rows * count);
    }
  }
}

void raw_targets(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, double* targets) {
  const int64_t width = plan.target_width();
  for_targets(plan, dataset, rows,
              [&](int64_t sample, int64_t place, double value) { targets[sample * width + place] = value; });
}

void encode_targets(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows, float* targets) {
  TROIKA_ASSERT(plan.kind == TargetKind::number || plan.kind == TargetKind::binary,
                "classes are whole numbers");
  const int64_t width = plan.target_width();
  std::vector<double> mean, scale;
  for (const TargetColumn& target : plan.targets) {
    mean.push_back(target.mean);
    scale.push_back(1 / target.deviation);
  }
  for_targets(plan, dataset, rows, [&](int64_t sample, int64_t place, double value) {
    const size_t target = static_cast<size_t>(place) % plan.targets.size();
    targets[sample * width + place] = static_cast<float>((value - mean[target]) * scale[target]);
  });
}

void encode_classes(const FeaturePlan& plan, const Dataset& dataset, const RowBuffer& rows,
                    int64_t* classes) {
  TROIKA_ASSERT(plan.kind != TargetKind::number, "numbers have no classes");
  const int64_t width = plan.target_width();
  for_targets(plan, dataset, rows, [&](int64_t sample, int64_t place, double value) {
    classes[sample * width + place] = static_cast<int64_t>(value);
  });
}

}  // namespace troika
